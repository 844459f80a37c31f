"""Attention on a mesh, for kernels that no compiler divides: each device has its part of the batch
and of the heads.

Which of them an axis of the mesh divides is not known where a program is lowered, before XLA
propagates shardings; so names decide: axes of tensor parallelism divide heads, all others rows of
the batch. Another division of the arrays costs collectives and changes no value.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, PartitionSpec

from anyjax.numerics.attention.form import Form
from anyjax.numerics.mesh_axes import NAMES


def attend(mesh: AbstractMesh, kernel: Callable, form: Form, query, key, value, *masks):
    """Calls a kernel's ``attend`` in each device's part of the arrays."""
    return _over(mesh, functools.partial(kernel, form), (query, key, value, *masks), ())


def backward(
    mesh: AbstractMesh,
    kernel: Callable,
    form: Form,
    query,
    key,
    value,
    masks,
    out,
    sums,
    cotangent,
    active,
):
    """Calls a kernel's ``backward`` in each device's part of the arrays."""
    count = len(masks)

    def run(query, key, value, *rest):
        masks, (out, sums, cotangent) = rest[:count], rest[count:]
        return kernel(form, query, key, value, masks, out, sums, cotangent, active)

    return _over(mesh, run, (query, key, value, *masks, out, sums, cotangent), (1, 2))


def _over(mesh: AbstractMesh, run: Callable, arrays: tuple, of_keys: tuple[int, ...]) -> Any:
    """Calls ``run`` in parts; results ``of_keys`` have the heads of keys."""
    query, key, value, *rest = arrays
    context = jax.sharding.get_abstract_mesh()  # whose axes may be Auto in a part of the program
    mesh = mesh if context.empty else context
    rows, split = _axes(mesh, *query.shape[:2])
    count, heads = _size(mesh, split), key.shape[1]
    repeats = 1 if heads % count == 0 else count // math.gcd(count, heads)
    if repeats > 1:  # every device has the keys of its own heads
        key, value = (jnp.repeat(x, repeats, 1) for x in (key, value))

    def spec(x: jax.Array) -> PartitionSpec:
        names = (rows if x.shape[0] > 1 else None), (split if x.shape[1] > 1 else None)
        return PartitionSpec(*names, *(None,) * (x.ndim - 2))

    arrays = query, key, value, *rest
    out = jax.shard_map(
        run,
        mesh=mesh,
        in_specs=tuple(map(spec, arrays)),
        out_specs=jax.tree.map(spec, jax.eval_shape(run, *arrays)),
        check_vma=False,
    )(*arrays)
    summed = lambda x: x.reshape(x.shape[0], heads, repeats, *x.shape[2:]).sum(2)
    return [summed(x) if i in of_keys and repeats > 1 else x for i, x in enumerate(out)]


def _axes(mesh: AbstractMesh, batch: int, heads: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the axes that divide the batch, and those that divide heads."""
    rows: list[str] = []
    split: list[str] = []
    for name, size in mesh.shape.items():
        choices = [(split, heads), (rows, batch)]
        for names, length in choices if name in NAMES["tp"] else reversed(choices):
            if size > 1 and length % (_size(mesh, names) * size) == 0:
                names.append(name)
                break
    return tuple(rows), tuple(split)


def _size(mesh: AbstractMesh, names: tuple[str, ...] | list[str]) -> int:
    return math.prod(mesh.shape[name] for name in names)
