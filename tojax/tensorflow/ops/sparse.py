"""Sparse tensors (indices, values, shape) beside dense ones: as many entries as indices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tojax.stablehlo.core.static_values import as_jax, is_known, known, sizes
from tojax.tensorflow.core.schema import Known, Static, lowers


def places(indices):
    """The index that reads or writes all entries."""
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
    """The entries and those of a dense array, which is broadcast, at their places."""

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
    """Without axes over all."""
    dense = jnp.zeros(sizes(input_shape), input_values.dtype)
    dense = dense.at[places(input_indices)].add(input_values)
    axes = tuple(int(a) for a in np.ravel(reduction_axes)) or None
    return jnp.sum(dense, axes, keepdims=keep_dims)


@lowers("SparseSoftmax")
def softmax(sp_indices: Known, sp_values, sp_shape: Static):
    """Over the entries of a row; what is not there counts as minus infinity."""
    shape = sizes(sp_shape)
    rows = jnp.ravel_multi_index(places(sp_indices)[:-1], shape[:-1], mode="clip")
    count = int(np.prod(shape[:-1]))
    top = jax.lax.stop_gradient(jax.ops.segment_max(sp_values, rows, count))
    exp = jnp.exp(sp_values - top[rows])
    return exp / jax.ops.segment_sum(exp, rows, count)[rows]


@lowers("SparseReorder")
def reorder(input_indices: Known, input_values, input_shape):
    """Row by row."""
    of = np if is_known(input_indices) else jnp
    order = of.lexsort(tuple(input_indices[:, i] for i in reversed(range(input_indices.shape[1]))))
    return input_indices[order], input_values[order]


# Ragged tensors (flat values and the ends of rows) whose rows are known, or padded to a size.


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
