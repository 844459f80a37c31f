"""Sparse tensors beside dense ones."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

AT = np.array([[0, 1], [2, 3], [2, 0]], np.int64)
V = np.array([1.5, -2.0, 0.5], np.float32)
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def sparse(v, at=AT):
    return tf.SparseTensor(at, v, [3, 4])


@pytest.mark.parametrize(
    "function",
    [
        lambda v, x: tf.sparse.sparse_dense_matmul(sparse(v), x, adjoint_b=True),
        lambda v, x: tf.sparse.sparse_dense_matmul(sparse(v), x, adjoint_a=True),
        lambda v, x: tf.sparse.add(sparse(v), x),
        lambda v, x: (sparse(v) * x).values,
        lambda v, x: (sparse(v) / x).values,
        lambda v, x: (sparse(v) * x[:1]).values,
        lambda v, x: tf.sparse.reduce_sum(sparse(v), 1, keepdims=True) + x,
        lambda v, x: tf.sparse.reduce_sum(sparse(v)) * x,
        lambda v, x: tf.sparse.to_dense(tf.sparse.transpose(tf.sparse.reorder(sparse(v)))),
    ],
)
def test_entries(function):
    agree(function, V, X, vmap=False)


def test_softmax():
    agree(lambda v: tf.sparse.softmax(tf.sparse.reorder(sparse(v))).values, V)


def test_places_that_are_traced():
    agree(lambda at, v: tf.sparse.reorder(sparse(v, at)).values, AT, V)
    agree(lambda at, v, x: tf.sparse.sparse_dense_matmul(sparse(v, at), x), AT, V, X.T)
