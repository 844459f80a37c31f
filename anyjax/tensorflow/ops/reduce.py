"""Reductions over axes, running sums and products, and counts in bins."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics.division import mean
from anyjax.tensorflow.core.schema import Static, lowers, table
from anyjax.tensorflow.ops.index import add


def axes(x, indices) -> tuple[int, ...]:
    """Returns the axes counted from the front, each once."""
    return tuple(sorted({int(i) % x.ndim for i in np.ravel(indices)}))


def _reducing(function):
    """Makes a lowering of ``function(x, axes)``."""

    def lowering(input, axis: Static, /, keep_dims):
        along = axes(input, axis)
        if not along:
            return function(input, along)
        out = function(input, along)
        return lax.expand_dims(out, along) if keep_dims else out

    return lowering


def euclidean_norm(x, along):
    squares = jnp.sum((x * jnp.conj(x)), along, dtype=x.dtype)
    return jnp.sqrt(squares).astype(x.dtype)


table.update(
    {
        "All": _reducing(jnp.all),
        "Any": _reducing(jnp.any),
        "EuclideanNorm": _reducing(euclidean_norm),
        "Max": _reducing(lax.reduce_max),
        "Mean": _reducing(mean),
        "Min": _reducing(lax.reduce_min),
        "Prod": _reducing(lambda x, along: jnp.prod(x, along, dtype=x.dtype)),
        "Sum": _reducing(lambda x, along: jnp.sum(x, along, dtype=x.dtype)),
    }
)


# Running sums, products and log-sums.


def _running(function, start):
    """Makes a lowering of ``function(x, axis, reverse)``; if exclusive it begins with ``start``."""

    def lowering(x, axis: Static, exclusive, reverse):
        along = int(axis) % x.ndim
        if exclusive:
            edges = [(0, 0, 0)] * x.ndim
            edges[along] = (-1, 1, 0) if reverse else (1, -1, 0)
            x = lax.pad(x, np.asarray(start, x.dtype), edges)
        return function(x, along, reverse)

    return lowering


table.update(
    {
        "Cumprod": _running(lax.cumprod, 1),
        "Cumsum": _running(lax.cumsum, 0),
        "CumulativeLogsumexp": _running(lax.cumlogsumexp, -np.inf),
    }
)


# Counting into bins.


@lowers("Bincount")
def bincount(arr, size: Static, weights):
    return dense_bincount(jnp.ravel(arr), size, jnp.ravel(weights), False)


@lowers("DenseBincount")
def dense_bincount(input, size: Static, weights, binary_output):
    """The rows of a matrix are counted each by itself. Without weights the values are counted;
    values outside of the bins are dropped.
    """
    zeros = jnp.zeros(int(size), weights.dtype)
    if binary_output:
        count = lambda values, _: zeros.at[values].set(1, mode="drop", wrap_negative_indices=False)
    else:
        count = lambda values, weight: add(zeros, values, weight)
    weighted = weights.size and not binary_output
    weights = weights if weighted else jnp.ones((), weights.dtype)
    if input.ndim == 2:
        return jax.vmap(count, (0, 0 if weighted else None))(input, weights)
    return count(input, weights)


@lowers("HistogramFixedWidth")
def histogram(values, value_range, nbins: Static, dtype):
    """Values outside of the range count in the first or the last bin."""
    low, high = value_range
    step = (high - low) / int(nbins)
    place = jnp.clip(jnp.floor((jnp.ravel(values) - low) / step), 0, int(nbins) - 1)
    return add(jnp.zeros(int(nbins), dtype), place.astype("int32"), jnp.ones((), dtype))
