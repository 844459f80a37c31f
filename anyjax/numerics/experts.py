"""Experts on a mesh: each device serves its own rows, by its own experts.

XLA divides no rows that are sorted by expert: left to it, every device sorts and gathers those of
all. That is right where they are fewer than the weights, which XLA leaves where they are. Where
there are more, the rows of a batch stay on their devices here. Along an axis of experts every
device has all of them and adds what its own experts make of them: an exchange of fixed size that
drops no row would move as much, as all rows may choose the same expert.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh, PartitionSpec

from anyjax.numerics.mesh_axes import NAMES, batch_axes
from anyjax.numerics.replicated import mesh_of


def divisions(
    hidden: jax.Array, choices: int, stacks: Sequence[jax.Array]
) -> tuple[AbstractMesh | None, tuple[str, ...], str]:
    """Returns the mesh, the axes that divide rows, and the axis that divides experts; no mesh
    where nothing is divided.

    Args:
      hidden: [rows, features].
      choices: experts of a row.
      stacks: [experts, ...] each.
    """
    mesh = mesh_of(hidden)
    if mesh is None or jax.sharding.get_abstract_mesh().manual_axes:
        return None, (), ""
    of_experts = (x for x in mesh.axis_names if x in NAMES["expert"] and mesh.shape[x] > 1)
    axis = next((x for x in of_experts if stacks[0].shape[0] % mesh.shape[x] == 0), "")
    rows = tuple(name for name in batch_axes(mesh) if mesh.shape[name] > 1)
    local = sum(x.size for x in stacks) // (mesh.shape[axis] if axis else 1)
    few = choices * hidden.size < local  # gathered weights would be more than gathered rows
    if few or hidden.shape[0] % math.prod(mesh.shape[name] for name in rows):
        rows = ()
    return (mesh if rows or axis else None), rows, axis


def in_parts(
    run: Callable,
    hidden: jax.Array,
    index: jax.Array,
    weights: jax.Array,
    stacks: Sequence[jax.Array],
    mesh: AbstractMesh,
    rows: tuple[str, ...],
    axis: str,
) -> jax.Array:
    """Returns what experts make of rows, [rows, features].

    Args:
      run: a function of such arrays, whose ``index`` is the number of experts where a row is
        another device's.
      hidden: [rows, features].
      index: [rows, choices], the experts of each row.
      weights: [rows, choices].
      stacks: [experts, ...] each.
      mesh, rows, axis: as of ``divisions``.
    """

    def part(hidden, index, weights, *stacks):
        if axis:
            count = stacks[0].shape[0]
            index = index - lax.axis_index(axis).astype(index.dtype) * count
            inside = (index >= 0) & (index < count)
            index = jnp.where(inside, index, jnp.asarray(count, index.dtype))
            weights = jnp.where(inside, weights, jnp.zeros((), weights.dtype))
        out = run(hidden, index, weights, *stacks)
        return lax.psum(out, axis) if axis else out

    of_rows, of_experts = PartitionSpec(rows or None), PartitionSpec(axis or None)
    return jax.shard_map(
        part,
        mesh=mesh,
        in_specs=(of_rows,) * 3 + (of_experts,) * len(stacks),
        out_specs=of_rows,
        axis_names={*rows, *([axis] if axis else [])},
        check_vma=False,
    )(hidden, index, weights, *stacks)
