"""Sparse tensors (indices, values, shape) beside dense ones: as many entries as indices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tojax.tensorflow.core.known import as_jax, is_known, shape
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
        dense = jnp.broadcast_to(dense, shape(sp_shape))
        return operation(sp_values, dense[places(sp_indices)])

    return lowering


lowers("SparseDenseCwiseMul")(cwise(jnp.multiply))
lowers("SparseDenseCwiseDiv")(cwise(jnp.divide))
lowers("SparseDenseCwiseAdd")(cwise(jnp.add))


@lowers("SparseReduceSum")
def reduce_sum(input_indices: Known, input_values, input_shape: Static, reduction_axes: Static,
               keep_dims):  # fmt: skip
    """Without axes over all."""
    dense = jnp.zeros(shape(input_shape), input_values.dtype)
    dense = dense.at[places(input_indices)].add(input_values)
    axes = tuple(int(a) for a in np.ravel(reduction_axes)) or None
    return jnp.sum(dense, axes, keepdims=keep_dims)


@lowers("SparseSoftmax")
def softmax(sp_indices: Known, sp_values, sp_shape: Static):
    """Over the entries of a row; what is not there counts as minus infinity."""
    sizes = shape(sp_shape)
    rows = jnp.ravel_multi_index(places(sp_indices)[:-1], sizes[:-1], mode="clip")
    count = int(np.prod(sizes[:-1]))
    top = jax.lax.stop_gradient(jax.ops.segment_max(sp_values, rows, count))
    exp = jnp.exp(sp_values - top[rows])
    return exp / jax.ops.segment_sum(exp, rows, count)[rows]


@lowers("SparseReorder")
def reorder(input_indices: Known, input_values, input_shape):
    """Row by row."""
    of = np if is_known(input_indices) else jnp
    order = of.lexsort(tuple(input_indices[:, i] for i in reversed(range(input_indices.shape[1]))))
    return input_indices[order], input_values[order]
