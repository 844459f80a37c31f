"""A module's tensors as JAX arrays on their devices, the module left without memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import torch
from jax.sharding import NamedSharding, PartitionSpec, Sharding
from tqdm.auto import tqdm

from tojax import multiprocess
from tojax.hf.loading.deferred import Deferred
from tojax.model import Model
from tojax.parallel._shard import specs
from tojax.parallel.plans.axes import current
from tojax.parallel.plans.packed import turned
from tojax.torch.core import interop
from tojax.torch.core.dtypes import to_jax
from tojax.torch.source import TorchSource
from tojax.torch.state.slots import Slots
from tojax.transforms.packed import Packed

WORKERS = 4  # reading waits for the disk and the kernel, so a few more than cores help


def shardings(made: TorchSource, mesh: Any, plan: Any) -> dict[str, Sharding | None]:
    """Where each tensor goes: None is JAX's default device; on a mesh the plan decides of weights,
    and everything else is replicated.

    Raises:
      WrongArguments: a plan without a mesh, see ``tojax.parallel.shard`` for others.
    """
    tensors = made.slots.tensors
    if mesh is None and plan is None:
        return dict.fromkeys(tensors)
    mesh = current(mesh)
    given = {k: _shape(t) for k, t in tensors.items()}
    state = {k: given[k] for k in made.slots.state}
    model = Model({k: given[k] for k in made.slots.params}, state, made)
    # Where the blocks of a quantized matrix end is not known yet; "fsdp" has the choice.
    rows = lambda k, dimension, parts: dimension == 0 or getattr(tensors[k], "grid", None) is None
    found = specs(model, mesh, plan or {}, fits=rows)
    return {k: NamedSharding(mesh, found.get(k, PartitionSpec())) for k in tensors}


def _shape(tensor: torch.Tensor) -> Any:
    """Of a weight the shape; of a buffer the values, which Python code may look at."""
    if isinstance(tensor, torch.nn.Parameter):
        return jax.ShapeDtypeStruct(tuple(tensor.shape), to_jax(tensor.dtype))
    return interop.to_jax(tensor.read() if isinstance(tensor, Deferred) else tensor.detach())


def take(
    slots: Slots, places: Mapping[str, Any], keep: Callable[[Packed], bool] = lambda form: False
) -> tuple[dict[str, jax.Array], tuple[Packed, ...]]:
    """(All tensors as arrays, the forms of those that came as small numbers and are kept as such).

    Parameters are left on the meta device; buffers, which Python code in a forward may look at, get
    their values.
    """
    total = sum(t.numel() * t.element_size() for t in slots.tensors.values())
    shown = {"unit": "B", "unit_scale": True, "desc": "Loading weights"}
    shown["disable"] = None if multiprocess.leads() else True
    arrays: dict[str, jax.Array] = {}
    forms: list[Packed] = []
    homes: dict[str, list[tuple[dict[str, Any], str]]] = {}
    for held, attribute, name in slots.places:
        homes.setdefault(name, []).append((held, attribute))
    made = {k: t for k, t in slots.tensors.items() if not isinstance(t, Deferred)}
    made = {k: interop.to_jax(t) for k, t in made.items() if t.device.type != "meta"}
    with tqdm(total=total, **shown) as bar, ThreadPoolExecutor(WORKERS) as pool:
        jobs = {k: pool.submit(_take, slots, k, homes[k], places[k], keep) for k in homes}
        try:
            for name, job in jobs.items():
                size = slots.tensors[name].numel() * slots.tensors[name].element_size()
                found, form = job.result()
                arrays |= found
                forms += [] if form is None else [form]
                bar.update(size)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if any(
        getattr(place, "mesh", None) and place.mesh.is_multi_process for place in places.values()
    ):
        multiprocess.check_same(made, do="call torch.manual_seed(0) first: they are drawn anew")
    for module in slots.module.modules():
        for name, value in vars(module).items():
            if isinstance(value, Deferred):
                setattr(module, name, value.read())
    return arrays, tuple(forms)


def _take(slots: Slots, name: str, homes: list, sharding: Sharding | None, keep: Callable):
    tensor = slots.tensors[name]
    parameter = isinstance(tensor, torch.nn.Parameter)
    if isinstance(tensor, Deferred) and not parameter:
        tensor = tensor.read()
    found, form = _packed(name, tensor, sharding, keep)
    if form is None:
        found = {name: _placed(tensor.detach(), sharding)}
    left = tensor
    if parameter:
        empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        left = torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
    slots.tensors[name] = left
    for held, attribute in homes:
        held[attribute] = left
    return found, form


def _packed(name: str, tensor: torch.Tensor, sharding: Sharding | None, keep: Callable):
    """(parts, form) of a matrix that came as small numbers in blocks; none for any other."""
    read = getattr(tensor, "grid", None)
    grid = read() if read is not None else None
    if grid is None or not grid.block:
        return {}, None
    form = Packed(
        name, grid.scheme, grid.block, tuple(tensor.shape), np.dtype(to_jax(tensor.dtype))
    )
    if not keep(form):
        return {}, None
    arrays = dict(zip(form.parts, map(interop.to_jax, grid.packed())))
    homes: Any = sharding
    if isinstance(sharding, NamedSharding):
        mesh, specs = sharding.mesh, turned(form, sharding.spec, sharding.mesh)
        homes = {part: NamedSharding(mesh, spec) for part, spec in specs.items()}
    home = lambda k: homes[k] if isinstance(homes, dict) else homes
    return {k: multiprocess.put(x, home(k)) for k, x in arrays.items()}, form


def _placed(tensor: torch.Tensor, sharding: Sharding | None) -> jax.Array:
    whole = isinstance(tensor, Deferred) and tensor.sliced
    if sharding is not None and whole and not sharding.is_fully_replicated:
        return jax.make_array_from_callback(tuple(tensor.shape), sharding, _parts(tensor))
    if isinstance(tensor, Deferred):
        tensor = tensor.read()
    return multiprocess.put(interop.to_jax(tensor), sharding)


def _parts(tensor: Deferred) -> Callable:
    """Reads a part of a tensor, once for all devices of this process that hold the same one."""
    found: dict[str, jax.Array] = {}

    def part(index: tuple[slice, ...]) -> jax.Array:
        key = str(index)  # slices have no hash before Python 3.12
        if key not in found:
            found[key] = interop.to_jax(tensor.read(index))
        return found[key]

    return part
