"""Sparse tensors (indices, values, shape) with dense ones, and ragged tensors (values, row ends).

A sparse tensor has as many entries as indices. The rows of a ragged one are known, or padded.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.stablehlo.core.static_values import as_jax, is_known, known, sizes
from anyjax.tensorflow.core.schema import Known, Static, lowers


def places(indices):
    """Returns the index that reads or writes all entries."""
    return tuple(jnp.moveaxis(as_jax(indices), -1, 0))


@lowers("SparseTensorDenseMatMul")
def matmul(a_indices: Known, a_values, a_shape: Static, b, adjoint_a, adjoint_b):
    row, column = places(a_indices)
    count = int(a_shape[1 if adjoint_a else 0])
    if adjoint_a:
        row, column, a_values = column, row, jnp.conj(a_values)
    b = jnp.conj(b).T if adjoint_b else b
    return jnp.zeros((count, b.shape[1]), b.dtype).at[row].add(a_values[:, None] * b[column])


@lowers("SparseTensorDenseAdd")
def add(a_indices: Known, a_values, a_shape, b):
    return b.at[places(a_indices)].add(a_values)


def cwise(operation):
    """Lowers an operation of the entries and a broadcast dense array at their places."""

    def lowering(sp_indices: Known, sp_values, sp_shape: Static, dense):
        dense = jnp.broadcast_to(dense, sizes(sp_shape))
        return operation(sp_values, dense[places(sp_indices)])

    return lowering


lowers("SparseDenseCwiseMul")(cwise(jnp.multiply))
lowers("SparseDenseCwiseDiv")(cwise(jnp.divide))
lowers("SparseDenseCwiseAdd")(cwise(jnp.add))


@lowers("SparseReduceSum")
def reduce_sum(input_indices: Known, input_values, input_shape: Static, reduction_axes: Static,
               keep_dims):  # fmt: skip
    """No axes: the sum of all entries."""
    dense = jnp.zeros(sizes(input_shape), input_values.dtype)
    dense = dense.at[places(input_indices)].add(input_values)
    axes = tuple(int(a) for a in np.ravel(reduction_axes)) or None
    return jnp.sum(dense, axes, keepdims=keep_dims)


@lowers("SparseSoftmax")
def softmax(sp_indices: Known, sp_values, sp_shape: Static):
    """Over the entries of a row; missing ones count as minus infinity."""
    shape = sizes(sp_shape)
    rows = jnp.ravel_multi_index(places(sp_indices)[:-1], shape[:-1], mode="clip")
    count = int(np.prod(shape[:-1]))
    top = jax.lax.stop_gradient(jax.ops.segment_max(sp_values, rows, count))
    exp = jnp.exp(sp_values - top[rows])
    return exp / jax.ops.segment_sum(exp, rows, count)[rows]


@lowers("SparseReorder")
def reorder(input_indices: Known, input_values, input_shape):
    """Row by row."""
    xp = np if is_known(input_indices) else jnp
    order = xp.lexsort(tuple(input_indices[:, i] for i in reversed(range(input_indices.shape[1]))))
    return input_indices[order], input_values[order]


# Ragged tensors.


@lowers("RaggedTensorToTensor")
def to_tensor(shape: Known, values, default_value, row_partition_tensors: Known,
              row_partition_types):  # fmt: skip
    """A row that is longer than the shape allows is cut off."""
    kinds, partitions = list(row_partition_types), list(row_partition_tensors)
    if kinds[0] == "FIRST_DIM_SIZE":
        kinds, count = kinds[1:], int(known(partitions.pop(0), "how many rows there are"))
    else:
        count = len(partitions[0]) - 1
    limits = [int(n) for n in np.ravel(known(shape, "the shape of a ragged tensor's array"))]
    limits += [-1] * (1 + len(kinds) - len(limits))
    at, index, sizes = np.arange(values.shape[0]), [], []
    for kind, partition, size in reversed([*zip(kinds, partitions, limits[1:])]):
        rows, at_row = _rows_and_offsets(kind, partition, at)
        index.insert(0, at_row)
        sizes.insert(0, size if size >= 0 else _longest_row(partition, kind))
        at = rows
    dense_shape = (limits[0] if limits[0] >= 0 else count, *sizes, *values.shape[1:])
    dense = jnp.broadcast_to(default_value, dense_shape)
    return dense.at[(at, *index)].set(values, mode="drop")


def _rows_and_offsets(kind, partition, at):
    """Returns the row of each element and its position in that row."""
    xp = np if is_known(partition) and is_known(at) else jnp
    if kind == "ROW_SPLITS":
        rows = xp.searchsorted(partition, at, side="right") - 1
        return rows, at - xp.asarray(partition)[rows]
    rows = xp.asarray(partition)[at]
    return rows, at - xp.searchsorted(partition, rows, side="left")


def _longest_row(partition, kind) -> int:
    ends = known(partition, "the length of a ragged tensor's longest row")
    lengths = np.diff(ends) if kind == "ROW_SPLITS" else np.bincount(ends)
    return int(lengths.max(initial=0))


@lowers("RaggedGather")
def gather(params_nested_splits: Known, params_dense_values, indices: Known, OUTPUT_RAGGED_RANK):
    what = "which rows of a ragged tensor are gathered"
    indices = known(indices, what)
    splits: list[np.ndarray] = []
    for size in indices.shape[1:]:  # its own axes are rows of one length
        rows = int(np.prod(indices.shape[: len(splits) + 1]))
        splits.append(np.arange(rows + 1) * size)
    at = indices.ravel()
    for ends in params_nested_splits:
        ends = known(ends, what)
        lengths = ends[at + 1] - ends[at]
        splits.append(np.concatenate([[0], np.cumsum(lengths)]).astype(ends.dtype))
        at = np.concatenate([np.arange(ends[i], ends[i + 1]) for i in at] or [at])
    return (*splits, jnp.asarray(as_jax(params_dense_values))[at])
