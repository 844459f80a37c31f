"""Convolutions in groups over the devices of a mesh, as sums of products.

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
