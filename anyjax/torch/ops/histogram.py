"""Counting values in bins."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import canonical
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import default_int, floating
from anyjax.torch.ops.create import linspace


@lowers(aten.bincount)
def bincount(self, weights, minlength):
    """The largest value decides the length, so it must be known; weights count as floats."""
    size = max(minlength, int(self.max()) + 1 if self.size else 0)
    ones = jnp.ones(self.shape, default_int()) if weights is None else weights
    if weights is not None and weights.dtype != np.float32:
        ones = weights.astype(canonical("float64"))
    return jnp.zeros(size, ones.dtype).at[self].add(ones)


def span(x, low, high, margin):
    """The range given or, if empty, that of the values, with a margin if they are all equal."""
    if low == high:
        low, high = (x.min(), x.max()) if x.size else (low, high)
    low, high = (jnp.asarray(v, x.dtype) for v in (low, high))
    return jnp.where(low == high, low - margin, low), jnp.where(low == high, high + margin, high)


@lowers(aten.histc)
def histc(self, bins, min, max):
    """Counts in the dtype of the values; what is outside, and NaN, is dropped."""
    x = floating(self)
    low, high = span(x, min, max, 1)
    place = jnp.floor((x - low) * bins / (high - low))
    place = jnp.where(x == high, bins - 1, place)
    place = jnp.where((x >= low) & (x <= high), place, bins).astype(default_int())
    return jnp.zeros(bins, x.dtype).at[place.reshape(-1)].add(1, mode="drop").astype(self.dtype)


def edges_of(x, bins, range, axis):
    """Equally wide bins along one column of ``x``."""
    empty = (0.0, 0.0) if x.size else (0.0, 1.0)
    low, high = range[2 * axis : 2 * axis + 2] if range else empty
    return linspace(*span(x[:, axis], low, high, 0.5), bins + 1, x.dtype)


def counts(x, edges, weight, density, /):
    """The weight of the rows of ``x`` in each box; the last edge belongs to the last bin."""
    x = x.reshape(-1, len(edges))
    flat, inside = jnp.zeros(len(x), default_int()), jnp.ones(len(x), bool)
    for column, edge in zip(x.T, edges, strict=True):
        place = jnp.searchsorted(edge, column, side="right") - 1
        place = jnp.where(column == edge[-1], len(edge) - 2, place)
        inside &= (column >= edge[0]) & (column <= edge[-1])
        flat = flat * (len(edge) - 1) + place
    shape = [len(edge) - 1 for edge in edges]
    weight = jnp.ones(len(x), x.dtype) if weight is None else weight.reshape(-1).astype(x.dtype)
    flat = jnp.where(inside, flat, math.prod(shape))
    total = jnp.zeros(math.prod(shape), x.dtype).at[flat].add(weight, mode="drop").reshape(shape)
    if not density:
        return total
    for axis, edge in enumerate(edges):
        total = total / lax.expand_dims(jnp.diff(edge), [a for a in range(len(edges)) if a != axis])
    return total / jnp.sum(jnp.where(inside, weight, 0))


def _columns(x):
    return x.reshape(-1, x.shape[-1])


table.update(
    {
        aten.histogram.bins_tensor: lambda self, bins, weight, density: (
            counts(self, [bins], weight, density),
            bins,
        ),
        aten._histogramdd_bin_edges: lambda self, bins, range, weight, density: [
            edges_of(_columns(self), n, range, axis) for axis, n in enumerate(bins)
        ],
        aten._histogramdd_from_bin_tensors: counts,
    }
)


@lowers(aten.histogram.bin_ct)
def histogram(self, bins, range, weight, density):
    edges = edges_of(self.reshape(-1, 1), bins, range, 0)
    return counts(self, [edges], weight, density), edges


@lowers(aten._histogramdd_from_bin_cts)
def histogramdd(self, bins, range, weight, density):
    edges = [edges_of(_columns(self), n, range, axis) for axis, n in enumerate(bins)]
    return counts(self, edges, weight, density)
