"""Pooling: what windows start from, how many elements they have, where their maxima lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def lowest(dtype: np.dtype) -> np.ndarray:
    """Returns the number that every maximum starts from."""
    inexact = jnp.issubdtype(dtype, jnp.inexact)
    return np.array(-np.inf if inexact else jnp.iinfo(dtype).min, dtype)


def window_counts(
    x: jax.Array,
    out: jax.Array,
    window: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    include_pad: bool = False,
) -> np.ndarray | np.generic | jax.Array:
    """Counts the elements of the windows ``out`` over ``x``, in one number if all have as many.

    The padding counts if ``include_pad``, but never beyond as much at the end as at the start.
    """
    counts = []
    for n, m, k, stride, (low, high) in zip(x.shape, out.shape, window, strides, pads):
        if not low and not high:  # the size may be a symbol
            counts.append(np.array([k]))
            continue
        numpy: Any = np if isinstance(m, int) else jnp
        start, edge = numpy.arange(m) * stride - low, low if include_pad else 0
        ends = numpy.asarray(n + edge)
        counts.append(numpy.minimum(start + k, ends) - numpy.maximum(start, -edge))
    axes = [count.reshape(-1, *[1] * i) for i, count in enumerate(counts[::-1])]
    sizes: Any = math.prod(axes[::-1])
    sizes = sizes.astype(out.dtype)
    if not isinstance(sizes, np.ndarray):
        return sizes
    return sizes.flat[0] if (sizes == sizes.flat[:1]).all() else sizes


def max_places(x: jax.Array, rank: int, window: dict[str, Sequence], nans: bool) -> jax.Array:
    """Returns each window's maximum as an index into the last ``rank`` dimensions, flattened: of
    equal elements the first, a NaN before numbers if ``nans``.
    """
    places = lax.iota(jnp.int32, math.prod(x.shape[-rank:])).reshape(x.shape[-rank:])

    def larger(a, b):
        (u, i), (v, j) = a, b
        second = (v > u) | ((v == u) & (j < i))
        if nans:
            second = (second | (v != v)) & ((u == u) | (v != v))
        return lax.select(second, v, u), lax.select(second, j, i)

    pair = lax.stop_gradient(x), lax.broadcast_in_dim(places, x.shape, range(x.ndim - rank, x.ndim))
    start = lowest(x.dtype), np.int32(np.iinfo(np.int32).max)
    return lax.reduce_window(pair, start, larger, **window)[1]


def inside(x, window):
    """The same windows without their padding where the only one reaches beyond both ends, as that
    of a pool of a thousand places over seven does: XLA would pad, and visit each place.
    """
    sizes, strides, pads, holes = (list(v) for v in window.values())
    for i, n in enumerate(x.shape):
        low, high = pads[i]
        if low + n + high == sizes[i] and holes[i] == 1:
            sizes[i], strides[i], pads[i] = n, 1, (0, 0)
    return dict(zip(window, (sizes, strides, pads, holes)))


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def place(values, places, size):
    """Each row's values at their places among zeros; all at one place get its gradient."""
    rows = np.arange(len(values))[:, None]
    return jnp.zeros((len(values), size), values.dtype).at[rows, places].set(values)


@place.defjvp
def _place_jvp(size, primals, tangents):
    values, places = primals
    rows = np.arange(len(values))[:, None]
    return place(*primals, size), jnp.zeros((len(values), size), values.dtype).at[rows, places].add(
        tangents[0]
    )
