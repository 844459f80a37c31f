"""Ragged tensors (flat values and the ends of rows) whose rows are known, or padded to a size."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tojax.tensorflow.core.known import as_jax, is_known, known
from tojax.tensorflow.core.schema import Known, lowers


@lowers("RaggedTensorToTensor")
def to_tensor(shape: Known, values, default_value, row_partition_tensors: Known,
              row_partition_types):  # fmt: skip
    """Where a row is longer than the shape wants, its end is cut off."""
    kinds, partitions = list(row_partition_types), list(row_partition_tensors)
    if kinds[0] == "FIRST_DIM_SIZE":
        kinds, count = kinds[1:], int(known(partitions.pop(0), "how many rows there are"))
    else:
        count = len(partitions[0]) - 1
    wanted = [int(n) for n in np.ravel(known(shape, "the shape of a ragged tensor's array"))]
    wanted += [-1] * (1 + len(kinds) - len(wanted))
    at, index, sizes = np.arange(values.shape[0]), [], []
    for kind, partition, size in reversed([*zip(kinds, partitions, wanted[1:])]):
        rows, at_row = _split(kind, partition, at)
        index.insert(0, at_row)
        sizes.insert(0, size if size >= 0 else _longest(partition, kind))
        at = rows
    full = (wanted[0] if wanted[0] >= 0 else count, *sizes, *values.shape[1:])
    filled = jnp.broadcast_to(default_value, full)
    return filled.at[(at, *index)].set(values, mode="drop")


def _split(kind, partition, at):
    """For elements: their rows, and where in them they are."""
    of = np if is_known(partition) and is_known(at) else jnp
    if kind == "ROW_SPLITS":
        rows = of.searchsorted(partition, at, side="right") - 1
        return rows, at - of.asarray(partition)[rows]
    rows = of.asarray(partition)[at]
    return rows, at - of.searchsorted(partition, rows, side="left")


def _longest(partition, kind) -> int:
    ends = known(partition, "the length of a ragged tensor's longest row")
    lengths = np.diff(ends) if kind == "ROW_SPLITS" else np.bincount(ends)
    return int(lengths.max(initial=0))


@lowers("RaggedGather")
def gather(params_nested_splits: Known, params_dense_values, indices: Known, OUTPUT_RAGGED_RANK):
    what = "which rows of a ragged tensor are gathered"
    indices = known(indices, what)
    splits: list[np.ndarray] = []
    for size in indices.shape[1:]:  # its own axes are rows of one length
        before = int(np.prod(indices.shape[: len(splits) + 1]))
        splits.append(np.arange(before + 1) * size)
    at = indices.ravel()
    for ends in params_nested_splits:
        ends = known(ends, what)
        lengths = ends[at + 1] - ends[at]
        splits.append(np.concatenate([[0], np.cumsum(lengths)]).astype(ends.dtype))
        at = np.concatenate([np.arange(ends[i], ends[i + 1]) for i in at] or [at])
    return (*splits, jnp.asarray(as_jax(params_dense_values))[at])
