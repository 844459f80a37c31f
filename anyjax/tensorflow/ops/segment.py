"""Reductions of the rows that have the same number.

A segment without rows is 0, of a product 1; of an unsorted maximum it is the lowest finite number,
of an unsorted minimum the highest. Rows with a negative number are dropped. NaN stays NaN:
TensorFlow's kernels lose it where a number follows.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import is_float
from anyjax.stablehlo.core.static_values import as_jax
from anyjax.tensorflow.core.schema import Known, Static, lowers, table
from anyjax.tensorflow.ops import index
from anyjax.tensorflow.ops.index import take

WRITE = {"Sum": index.add, "Prod": index.multiply, "Max": index.highest, "Min": index.lowest}


def empty_segment(how: str, dtype):
    """Returns the value of a segment without rows."""
    if how in ("Sum", "Prod"):
        return dtype.type(how == "Prod")
    limits = jnp.finfo(dtype) if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype)
    return limits.min if how == "Max" else limits.max


def reduced(how: str, data, ids, count: int):
    """Reduces rows [*ids.shape, ...] to segments [count, ...]."""
    ids = as_jax(ids)
    rows = jnp.reshape(data, (math.prod(ids.shape), *data.shape[ids.ndim :]))
    out = jnp.full((count, *rows.shape[1:]), empty_segment(how, data.dtype), data.dtype)
    return WRITE[how](out, jnp.ravel(ids), rows)


def segment_sizes(ids, count: int, rank: int, dtype):
    """Counts the rows of each segment, at least 1, shaped to divide by."""
    counts = jnp.zeros(count, "int32").at[as_jax(ids)].add(1, mode="drop")
    return lax.expand_dims(jnp.maximum(counts, 1).astype(dtype), range(1, rank))


def count_of(ids: np.ndarray) -> int:
    return int(ids[-1]) + 1 if ids.size else 0


def _sorted(how: str):
    def lowering(data, segment_ids: Static):
        count = count_of(segment_ids)
        out = reduced(how, data, segment_ids, count)
        empty = ~np.isin(np.arange(count), segment_ids)
        if how in ("Max", "Min") and empty.any():
            out = out.at[np.flatnonzero(empty)].set(0)
        return out

    return lowering


def _counted(how: str):
    def lowering(data, segment_ids, num_segments: Static):
        return reduced(how, data, segment_ids, int(num_segments))

    return lowering


for how in WRITE:
    table.update({f"Segment{how}": _sorted(how), f"Segment{how}V2": _counted(how)})
    table.update({f"UnsortedSegment{how}": _counted(how)})


@lowers("SegmentMean")
def segment_mean(data, segment_ids: Static):
    return mean(data, segment_ids, count_of(segment_ids))


def mean(rows, ids, count: int):
    """The mean of integers is cut, and the sum of their quotients does not wrap."""
    counts = segment_sizes(ids, count, rows.ndim, rows.dtype)
    sums = lambda x: reduced("Sum", x, ids, count)
    if is_float(rows.dtype):
        return lax.div(*jnp.broadcast_arrays(sums(rows), counts))
    each = take(counts, jnp.ravel(as_jax(ids))).reshape(
        *np.shape(ids), *[1] * (rows.ndim - np.ndim(ids))
    )
    remainders = sums(rows % each)
    low = sums(rows // each) + remainders // counts
    return low + ((low < 0) & (remainders % counts != 0)).astype(rows.dtype)


def sqrt_n(rows, ids, count: int):
    return reduced("Sum", rows, ids, count) / jnp.sqrt(
        segment_sizes(ids, count, rows.ndim, rows.dtype)
    )


SPARSE = {
    "Sum": lambda rows, ids, count: reduced("Sum", rows, ids, count),
    "Mean": mean,
    "SqrtN": sqrt_n,
}


def _sparse(function):
    def lowering(data, indices: Known, segment_ids: Static, sparse_gradient):
        return function(take(data, indices), segment_ids, count_of(segment_ids))

    return lowering


def _sparse_counted(function):
    def lowering(data, indices: Known, segment_ids, num_segments: Static, sparse_gradient):
        return function(take(data, indices), segment_ids, int(num_segments))

    return lowering


def spread(how: str, grad, indices, segment_ids, count: int):
    """Adds the gradient of each segment to its rows."""
    if how != "Sum":
        scale = segment_sizes(segment_ids, grad.shape[0], grad.ndim, grad.dtype)
        grad = grad / (scale if how == "Mean" else jnp.sqrt(scale))
    zeros = jnp.zeros((count, *grad.shape[1:]), grad.dtype)
    return index.add(zeros, indices, take(grad, segment_ids))


def _grad(how: str):
    def lowering(grad, indices, segment_ids, output_dim0: Static):
        return spread(how, grad, indices, segment_ids, int(output_dim0))

    return lowering


def _grad_v2(how: str):
    def lowering(grad, indices: Static, segment_ids, dense_output_dim0):
        """Returns the gradient of the rows used, and their numbers."""
        rows, place = np.unique(indices, return_inverse=True)
        return spread(how, grad, place, segment_ids, len(rows)), rows

    return lowering


for how, function in SPARSE.items():
    name = f"SparseSegment{how}"
    table.update({name: _sparse(function), f"{name}WithNumSegments": _sparse_counted(function)})
    table.update({f"{name}Grad": _grad(how), f"{name}GradV2": _grad_v2(how)})
