"""A module's tensors as JAX arrays on their devices, the module left without memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import torch
from jax.sharding import NamedSharding, PartitionSpec, Sharding
from tqdm.auto import tqdm

from tojax.errors import Unsupported, WrongArguments
from tojax.hf.deferred import Deferred, Reader
from tojax.torch.core import interop
from tojax.torch.state.module_state import Slots

WORKERS = 4  # reading waits for the disk and the kernel, so a few more than cores help
Rules = Iterable[tuple[str, PartitionSpec]]


def shardings(slots: Slots, mesh: Any, plan: Any) -> dict[str, Sharding | None]:
    """Where each tensor goes: None is JAX's default device; on a mesh the first rule that is found
    in a parameter's name decides, and everything else is replicated.

    Raises:
      WrongArguments: a plan without a mesh, or that does not divide an array; all are named.
      Unsupported: a plan by name.
    """
    if isinstance(plan, str):
        raise Unsupported(
            f"the plan {plan!r} does not exist yet",
            why="plans by name need rules for each architecture",
            do="give rules: plan={r'q_proj.weight': PartitionSpec('model', None)}",
        )
    if mesh is None:
        if plan is not None:
            raise WrongArguments("a plan needs a mesh", do="pass mesh=jax.make_mesh(...), too")
        return dict.fromkeys(slots.tensors)
    rules = list(plan.items() if isinstance(plan, Mapping) else plan or ())
    found: dict[str, Sharding | None] = {}
    wrong = []
    for name, tensor in slots.tensors.items():
        given = (s for pattern, s in rules if name in slots.params and re.search(pattern, name))
        spec, shape = next(given, PartitionSpec()), tuple(tensor.shape)
        try:
            found[name] = sharding = NamedSharding(mesh, spec)
            sharding.check_compatible_aval(shape)
            sharding.shard_shape(shape)
        except ValueError as error:
            wrong.append(f"{name} {list(shape)} as {spec}: {str(error).splitlines()[0]}")
    if wrong:
        raise WrongArguments(
            f"the plan does not fit {len(wrong)} arrays: {'; '.join(wrong)}",
            where=f"mesh {dict(mesh.shape)}",
            why="a sharded dimension is a multiple of its mesh axes",
            do="change those rules; what no rule names is replicated",
        )
    return found


def take(slots: Slots, places: Mapping[str, Any], reader: Reader) -> dict[str, jax.Array]:
    """All tensors as arrays. Parameters are left on the meta device; buffers, which Python code in
    a forward may look at, get their values.
    """
    total = sum(t.numel() * t.element_size() for t in slots.tensors.values())
    shown = {"unit": "B", "unit_scale": True, "desc": "Loading weights", "disable": None}
    arrays: dict[str, jax.Array] = {}
    homes: dict[str, list[tuple[dict[str, Any], str]]] = {}
    for held, attribute, name in slots.places:
        homes.setdefault(name, []).append((held, attribute))
    with tqdm(total=total, **shown) as bar, ThreadPoolExecutor(WORKERS) as pool:
        jobs = {k: pool.submit(_take, slots, k, homes[k], places[k]) for k in homes}
        try:
            for name, job in jobs.items():
                arrays[name] = job.result()
                bar.update(arrays[name].nbytes)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for module in slots.module.modules():
        for name, value in vars(module).items():
            if isinstance(value, Deferred):
                setattr(module, name, value.read())
    return arrays


def _take(slots: Slots, name: str, homes: list, sharding: Sharding | None) -> jax.Array:
    tensor = slots.tensors[name]
    parameter = isinstance(tensor, torch.nn.Parameter)
    if isinstance(tensor, Deferred) and not parameter:
        tensor = tensor.read()
    array = _placed(tensor.detach(), sharding)
    left = tensor
    if parameter:
        empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        left = torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
    slots.tensors[name] = left
    for held, attribute in homes:
        held[attribute] = left
    return array


def _placed(tensor: torch.Tensor, sharding: Sharding | None) -> jax.Array:
    whole = isinstance(tensor, Deferred) and tensor.sliced
    if sharding is not None and whole and not sharding.is_fully_replicated:
        part: Callable = lambda index: interop.to_jax(tensor.read(index))
        return jax.make_array_from_callback(tuple(tensor.shape), sharding, part)
    if isinstance(tensor, Deferred):
        tensor = tensor.read()
    return jax.device_put(interop.to_jax(tensor), sharding)
