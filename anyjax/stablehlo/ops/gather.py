"""Gather: an index beyond the end reads the last window that fits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.stablehlo.core.schema import lowers


@lowers("stablehlo.gather")
def gather(operand, indices, numbers, sizes, /):
    return lax.gather(
        operand,
        last_axis(indices, numbers.index_vector_dim),
        lax.GatherDimensionNumbers(
            tuple(numbers.offset_dims),
            tuple(numbers.collapsed_slice_dims),
            tuple(numbers.start_index_map),
            tuple(numbers.operand_batching_dims),
            tuple(numbers.start_indices_batching_dims),
        ),
        tuple(sizes),
        mode="clip",
    )


def last_axis(indices, axis):
    """Moves the axis of index vectors to the end, where ``lax`` has it."""
    if axis == indices.ndim:
        return lax.expand_dims(indices, [axis])
    order = [i for i in range(indices.ndim) if i != axis]
    return indices if axis == indices.ndim - 1 else lax.transpose(indices, [*order, axis])


@lowers("stablehlo.torch_index_select")
def torch_index_select(result, operand, index, dim, batch_dims, /):
    take = lambda x, i: jnp.take(x, i, dim - batch_dims, mode="clip")
    for _ in range(batch_dims):
        take = jax.vmap(take)
    return take(operand, index)
