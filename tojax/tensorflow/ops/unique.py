"""Different values and their places. The values decide how many there are: they must be known."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tojax.tensorflow.core.schema import Static, lowers


def distinct(x, axis, dtype):
    """The values in the order of their first places, which one each is, and how often it comes."""
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


@lowers("DynamicPartition")
def dynamic_partition(data, partitions: Static, num_partitions):
    rows = jnp.reshape(data, (-1, *data.shape[partitions.ndim :]))
    return [rows[np.flatnonzero(partitions == i)] for i in range(num_partitions)]
