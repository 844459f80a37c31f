"""Convolutions in groups as sums of products: over the devices of a mesh, and with many taps.

XLA's partitioner divides them wrongly: where their channels are on several devices, the values are
wrong or the process ends, and where the batch is, and another axis of the mesh is not used, the
gradient of the weights is counted once for each device of that axis. Seen in jaxlib 0.10.2, also in
programs of ``lax.conv_general_dilated`` alone. Products are divided rightly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

MOST = 256  # places in the window: each one is a product of the program
TAPS = 16  # of a turn
MANY = 64  # taps that libtpu takes minutes for: the gradient by weights has a window of all places


def by_products(
    lhs: jax.Array, rhs: jax.Array, strides: Sequence[int], padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int], rhs_dilation: Sequence[int], names: lax.ConvDimensionNumbers,
    groups: int, batch_groups: int, precision: lax.PrecisionLike, dtype: DTypeLike,
) -> jax.Array:  # fmt: skip
    """Returns the sum, over the places in the window, of the inputs there times the weights.

    Half precision is summed in float32, as XLA's convolutions do.
    """
    x = lax.transpose(lhs, names.lhs_spec)  # [rows, channels, *sizes]
    if batch_groups > 1:
        rows, channels, *sizes = x.shape
        x = x.reshape(batch_groups, rows // batch_groups, channels, *sizes)
        x = jnp.moveaxis(x, 0, 1).reshape(rows // batch_groups, batch_groups * channels, *sizes)
        groups = batch_groups
    margins = [(low, high, step - 1) for (low, high), step in zip(padding, lhs_dilation)]
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *margins])
    weights = lax.transpose(rhs, names.rhs_spec)  # [out, channels of a group, *window]
    out, of_group, *window = weights.shape
    weights = weights.reshape(groups, out // groups, of_group, math.prod(window))
    wide = jnp.promote_types(dtype, jnp.float32) if jnp.issubdtype(dtype, jnp.inexact) else dtype
    total = jnp.zeros((), wide)
    for n, place in enumerate(itertools.product(*map(range, window))):
        start = [0, 0, *(i * step for i, step in zip(place, rhs_dilation))]
        rest = [(size - 1 - i) * step for size, i, step in zip(window, place, rhs_dilation)]
        stop = [*x.shape[:2], *(size - r for size, r in zip(x.shape[2:], rest))]
        inputs = lax.slice(x, start, stop, (1, 1, *strides))
        inputs = inputs.reshape(inputs.shape[0], groups, of_group, *inputs.shape[2:])
        total += jnp.einsum(
            "rgc...,goc->rgo...",
            inputs,
            weights[..., n],
            precision=precision,
            preferred_element_type=wide,
        )
    total = total.reshape(total.shape[0], out, *total.shape[3:]).astype(dtype)
    return lax.transpose(total, [names.out_spec.index(i) for i in range(total.ndim)])


def by_taps(
    lhs: jax.Array, rhs: jax.Array, padding: Sequence[tuple[int, int]],
    names: lax.ConvDimensionNumbers, groups: int, precision: lax.PrecisionLike, dtype: DTypeLike,
) -> jax.Array:  # fmt: skip
    """Returns a convolution in one dimension, a few taps in turn, summed in float32."""
    (pads,) = padding
    x = lax.pad(lax.transpose(lhs, names.lhs_spec), jnp.zeros((), lhs.dtype), _along(3, *pads))
    weights = lax.transpose(rhs, names.rhs_spec)
    out, of_group, taps = weights.shape
    length = x.shape[2] - taps + 1
    rest = -taps % TAPS
    x = lax.pad(x, jnp.zeros((), x.dtype), _along(3, 0, rest))
    x = x.reshape(x.shape[0], groups, of_group, -1)
    weights = lax.pad(weights, jnp.zeros((), weights.dtype), _along(3, 0, rest))
    weights = weights.reshape(groups, out // groups, of_group, -1, TAPS)
    wide = jnp.promote_types(dtype, jnp.float32)

    @jax.checkpoint
    def step(total, turn):
        first, weights = turn
        inputs = lax.dynamic_slice_in_dim(x, first, length + TAPS - 1, 3)
        inputs = jnp.stack([inputs[..., i : i + length] for i in range(TAPS)], 3)
        result = jnp.einsum(
            "rgckn,gock->rgon", inputs, weights, precision=precision, preferred_element_type=wide
        )
        return total + result, None

    zeros = jnp.zeros((x.shape[0], groups, out // groups, length), wide)
    turns = jnp.arange(0, taps, TAPS), jnp.moveaxis(weights, 3, 0)
    total = lax.scan(step, zeros, turns)[0].reshape(x.shape[0], out, length).astype(dtype)
    return lax.transpose(total, [names.out_spec.index(i) for i in range(3)])


def _along(rank: int, low: int, high: int) -> list[tuple[int, int, int]]:
    """Returns a padding of the last axis."""
    return [(0, 0, 0)] * (rank - 1) + [(low, high, 0)]
