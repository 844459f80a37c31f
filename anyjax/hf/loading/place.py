"""A module as a Model: its tensors are read and put on their devices, one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding
from tqdm.auto import tqdm

from anyjax import multiprocess
from anyjax.hf.loading.module.deferred import Deferred
from anyjax.model import Model
from anyjax.torch.core import interop
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.source import TorchSource
from anyjax.torch.state.slots import Slots
from anyjax.transforms.packed import Packed, Quantized

if TYPE_CHECKING:
    from anyjax.parallel.plans.plans import Plan

WORKERS = 4  # reading waits for the disk and the kernel, so a few more than cores help


def place_model(
    torch_source: TorchSource, mesh: Mesh | None, plan: Plan | None, dequantize: bool | None
) -> Model:
    """Reads a module's tensors to their places; the module keeps no memory for its parameters.

    ``mesh``, ``plan`` and ``dequantize`` are those of ``from_pretrained``.

    Raises:
      BadCheckpoint: a file was cut off meanwhile, or is damaged.
      WrongArguments: there is a plan and no mesh; others as in ``anyjax.parallel.shard``.
    """
    slots = torch_source.slots
    places = _shardings(torch_source, mesh, plan)
    arrays, forms = _take_arrays(slots, places, partial(_stays_packed, dequantize))
    params = {k: arrays.pop(k) for k in slots.params if k in arrays}
    return Model(params, arrays, Quantized(torch_source, forms) if forms else torch_source)


def _stays_packed(dequantize: bool | None, form: Packed) -> bool:
    slow = jax.default_backend() == "cpu" and bool(form.kind.codes)
    return not slow if dequantize is None else not dequantize


def _shardings(
    torch_source: TorchSource, mesh: Mesh | None, plan: Plan | None
) -> dict[str, Sharding | None]:
    """Returns each tensor's sharding; None is JAX's default device.

    On a mesh the plan divides weights, and everything else is replicated.
    """
    tensors = torch_source.slots.tensors
    if mesh is None and plan is None:
        return dict.fromkeys(tensors)
    from anyjax.parallel._shard import specs
    from anyjax.parallel.plans.axes import current_mesh

    mesh = current_mesh(mesh)
    leaves = {k: _abstract_or_value(t) for k, t in tensors.items()}
    state = {k: leaves[k] for k in torch_source.slots.state}
    model = Model({k: leaves[k] for k in torch_source.slots.params}, state, torch_source)
    # Blocks of a quantized matrix are not known yet, so "fsdp" divides rows only.
    divides_rows = lambda k, dimension, devices: (
        dimension == 0 or getattr(tensors[k], "grid", None) is None
    )
    partition_specs = specs(model, mesh, plan or {}, fits=divides_rows)
    return {k: NamedSharding(mesh, partition_specs.get(k, PartitionSpec())) for k in tensors}


def _abstract_or_value(tensor: torch.Tensor) -> Any:
    """Returns a weight's shape, or a buffer's values, which Python code may read."""
    if isinstance(tensor, torch.nn.Parameter):
        return jax.ShapeDtypeStruct(tuple(tensor.shape), to_jax(tensor.dtype))
    return interop.to_jax(tensor.read() if isinstance(tensor, Deferred) else tensor.detach())


def _take_arrays(
    slots: Slots, places: Mapping[str, Any], stays_packed: Callable[[Packed], bool]
) -> tuple[dict[str, jax.Array], tuple[Packed, ...]]:
    """Returns (all tensors as arrays, the forms of matrices that stay packed).

    The module's parameters go to the meta device. Its buffers get their values, which Python code
    in a forward may read.
    """
    total = sum(t.numel() * t.element_size() for t in slots.tensors.values())
    bar_options = {"unit": "B", "unit_scale": True, "desc": "Loading weights"}
    bar_options["disable"] = None if multiprocess.leads() else True
    arrays: dict[str, jax.Array] = {}
    forms: list[Packed] = []
    homes: dict[str, list[tuple[dict[str, Any], str]]] = {}
    for owner, attribute, name in slots.places:
        homes.setdefault(name, []).append((owner, attribute))
    drawn = {k: t for k, t in slots.tensors.items() if not isinstance(t, Deferred)}
    drawn = {k: interop.to_jax(t) for k, t in drawn.items() if t.device.type != "meta"}
    with tqdm(total=total, **bar_options) as bar, ThreadPoolExecutor(WORKERS) as pool:
        jobs = {
            k: pool.submit(_take_one, slots, k, homes[k], places[k], stays_packed) for k in homes
        }
        try:
            for name, job in jobs.items():
                size = slots.tensors[name].numel() * slots.tensors[name].element_size()
                placed, form = job.result()
                arrays |= placed
                forms += [] if form is None else [form]
                bar.update(size)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if any(
        getattr(place, "mesh", None) and place.mesh.is_multi_process for place in places.values()
    ):
        multiprocess.check_same(drawn, do="call torch.manual_seed(0) first: they are drawn anew")
    for module in slots.module.modules():
        for name, value in vars(module).items():
            if isinstance(value, Deferred):
                setattr(module, name, value.read())
    return arrays, tuple(forms)


def _take_one(
    slots: Slots, name: str, homes: list, sharding: Sharding | None, stays_packed: Callable
):
    tensor = slots.tensors[name]
    parameter = isinstance(tensor, torch.nn.Parameter)
    if isinstance(tensor, Deferred) and not parameter:
        tensor = tensor.read()
    placed, form = _packed(name, tensor, sharding, stays_packed)
    if form is None:
        placed = {name: _placed(tensor.detach(), sharding)}
    replacement = tensor
    if parameter:
        empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        replacement = torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
    slots.tensors[name] = replacement
    for owner, attribute in homes:
        owner[attribute] = replacement
    return placed, form


def _packed(name: str, tensor: torch.Tensor, sharding: Sharding | None, stays_packed: Callable):
    """Returns (arrays, form) of a matrix of small numbers in blocks; ({}, None) for any other."""
    read = getattr(tensor, "grid", None)
    grid = read() if read is not None else None
    if grid is None or not grid.block:
        return {}, None
    form = Packed(
        name, grid.scheme, grid.block, tuple(tensor.shape), np.dtype(to_jax(tensor.dtype))
    )
    if not stays_packed(form):
        return {}, None
    arrays = dict(zip(form.parts, map(interop.to_jax, grid.packed())))
    homes: Any = sharding
    if isinstance(sharding, NamedSharding):
        from anyjax.parallel.plans.packed import part_specs

        mesh, specs = sharding.mesh, part_specs(form, sharding.spec, sharding.mesh)
        homes = {part: NamedSharding(mesh, spec) for part, spec in specs.items()}
    home = lambda k: homes[k] if isinstance(homes, dict) else homes
    return {k: multiprocess.put(x, home(k)) for k, x in arrays.items()}, form


def _placed(tensor: torch.Tensor, sharding: Sharding | None) -> jax.Array:
    is_sliceable = isinstance(tensor, Deferred) and tensor.sliced
    if sharding is not None and is_sliceable and not sharding.is_fully_replicated:
        return jax.make_array_from_callback(tuple(tensor.shape), sharding, _piece_reader(tensor))
    if isinstance(tensor, Deferred):
        tensor = tensor.read()
    return multiprocess.put(interop.to_jax(tensor), sharding)


def _piece_reader(tensor: Deferred) -> Callable:
    """Returns a function that reads slices of a tensor, each once for all local devices."""
    pieces: dict[str, jax.Array] = {}

    def read_piece(index: tuple[slice, ...]) -> jax.Array:
        key = str(index)  # slices have no hash before Python 3.12
        if key not in pieces:
            pieces[key] = interop.to_jax(tensor.read(index))
        return pieces[key]

    return read_piece
