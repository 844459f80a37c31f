"""Order: the largest elements, search in sorted rows, distinct values and their places."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics.bisection import bisect
from anyjax.tensorflow.core.schema import Static, lowers


def largest(x, k: int):
    """Returns values and places; of equal elements (0 and -0 are equal) the first ones."""
    key = lax.stop_gradient(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return lax.top_k(x, k)
    places = lax.top_k(jnp.where(key == 0, jnp.zeros_like(key), key), k)[1]
    return jnp.take_along_axis(x, places, -1, mode="promise_in_bounds"), places


@lowers("TopKV2")
def top_k_v2(input, k: Static, sorted, index_type):
    values, places = largest(input, int(k))
    return values, places.astype(index_type)


@lowers("TopK")
def top_k(input, k, sorted):
    return largest(input, k)


@lowers("InTopK", "InTopKV2")
def in_top_k(predictions, targets, k):
    """False where a prediction of the row is not finite, or the target is no class."""
    count = predictions.shape[-1]
    safe = jnp.clip(targets, 0, count - 1)[:, None]
    score = jnp.take_along_axis(predictions, safe, -1, mode="promise_in_bounds")
    valid = jnp.all(jnp.isfinite(predictions), -1) & (targets >= 0) & (targets < count)
    return valid & (jnp.sum(predictions > score, -1, dtype="int32") < k)


@lowers("ApproxTopK")
def approx_top_k(input, k, reduction_dimension, recall_target, is_max_k, /, *how):
    function = lax.approx_max_k if is_max_k else lax.approx_min_k
    return function(input, k, reduction_dimension, recall_target, *how)


def _arg(function, worst: float):
    """Makes a lowering that returns the first of equal elements; NaN counts as ``worst``."""

    def lowering(input, axis: Static, output_type, /):
        if jnp.issubdtype(input.dtype, jnp.floating):
            input = jnp.where(jnp.isnan(input), input.dtype.type(worst), input)
        return function(input, axis.item() % input.ndim, output_type)

    return lowering


for name, function, worst in (("ArgMax", lax.argmax, -np.inf), ("ArgMin", lax.argmin, np.inf)):
    lowers(name)(_arg(function, worst))


@lowers("NthElement")
def nth_element(input, n, reverse):
    """All elements of the value found share its gradient."""
    place = input.shape[-1] - 1 - n if reverse else n

    @jax.custom_jvp
    def nth(x):
        return lax.dynamic_index_in_dim(lax.sort(x), place, -1, keepdims=False)

    @nth.defjvp
    def jvp(primals, tangents):
        (x,), (dx,) = primals, tangents
        out = nth(x)
        hit = (x == out[..., None]).astype(x.dtype)
        return out, jnp.sum(dx * hit, -1) / jnp.sum(hit, -1)

    return nth(input)


# Search in sorted rows.


def _search(precedes):
    """Makes a lowering that searches row by row."""

    def lowering(sorted_inputs, values, out_type):
        return bisect(*map(lax.stop_gradient, (sorted_inputs, values)), precedes).astype(out_type)

    return lowering


lowers("LowerBound")(_search(lambda x, v: x < v))
lowers("UpperBound")(_search(lambda x, v: ~(v < x)))


@lowers("Bucketize")
def bucketize(input, boundaries):
    """Counts the boundaries that are not above each value."""
    kind = np.float32 if jnp.issubdtype(input.dtype, jnp.integer) else input.dtype
    edges = jnp.asarray(np.asarray(boundaries, kind))
    return jnp.searchsorted(edges, input.astype(kind), side="right").astype(np.int32)


# Distinct values and their places. The values decide how many there are: they must be known.


def distinct(x, axis, dtype):
    """Returns the distinct values in the order of their first places, the number of each element's
    value among them, and how often each occurs.
    """
    _, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis, equal_nan=False
    )
    order = np.argsort(first)
    rank = np.empty(len(order), dtype)
    rank[order] = np.arange(len(order))
    values = np.take(x, first[order], axis or 0)
    return values, rank[np.ravel(inverse)], counts[order].astype(dtype)


@lowers("UniqueWithCounts")
def unique_with_counts(x: Static, out_idx):
    return distinct(x, None, out_idx)


@lowers("Unique")
def unique(x: Static, out_idx):
    return distinct(x, None, out_idx)[:2]


@lowers("UniqueWithCountsV2")
def unique_with_counts_v2(x: Static, axis: Static, out_idx):
    """No axis: ``x`` is a vector."""
    return distinct(x, int(axis[0]) if axis.size else None, out_idx)


@lowers("UniqueV2")
def unique_v2(x: Static, axis: Static, out_idx):
    return unique_with_counts_v2(x, axis, out_idx)[:2]


@lowers("ListDiff")
def list_diff(x: Static, y: Static, out_idx):
    (place,) = np.nonzero(~np.isin(x, y))
    return x[place], place.astype(out_idx)
