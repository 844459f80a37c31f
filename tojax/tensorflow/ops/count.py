"""Counting into bins."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tojax.tensorflow.core.schema import Static, lowers
from tojax.tensorflow.ops.scatter import add


@lowers("Bincount")
def bincount(arr, size: Static, weights):
    return dense_bincount(jnp.ravel(arr), size, jnp.ravel(weights), False)


@lowers("DenseBincount")
def dense_bincount(input, size: Static, weights, binary_output):
    """Of a matrix each row by itself. Without weights the values are counted, and what lies outside
    of the bins is passed over.
    """
    zeros = jnp.zeros(int(size), weights.dtype)
    one = jnp.ones((), weights.dtype)
    if binary_output:
        count = lambda values, _: zeros.at[values].set(1, mode="drop", wrap_negative_indices=False)
    else:
        count = lambda values, weight: add(zeros, values, weight)
    weighted = weights.size and not binary_output
    weights = weights if weighted else one
    if input.ndim == 2:
        return jax.vmap(count, (0, 0 if weighted else None))(input, weights)
    return count(input, weights)


@lowers("HistogramFixedWidth")
def histogram(values, value_range, nbins: Static, dtype):
    """What lies outside of the range counts in the first or the last bin."""
    low, high = value_range
    step = (high - low) / int(nbins)
    place = jnp.clip(jnp.floor((jnp.ravel(values) - low) / step), 0, int(nbins) - 1)
    return add(jnp.zeros(int(nbins), dtype), place.astype("int32"), jnp.ones((), dtype))
