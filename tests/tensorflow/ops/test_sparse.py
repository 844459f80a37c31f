"""Sparse tensors with dense ones, and ragged tensors."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

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
    assert_agrees(function, V, X, vmap=False)


def test_softmax():
    assert_agrees(lambda v: tf.sparse.softmax(tf.sparse.reorder(sparse(v))).values, V)


def test_places_that_are_traced():
    assert_agrees(lambda at, v: tf.sparse.reorder(sparse(v, at)).values, AT, V)
    assert_agrees(lambda at, v, x: tf.sparse.sparse_dense_matmul(sparse(v, at), x), AT, V, X.T)


# Ragged tensors whose rows are known.


ROWS = np.random.default_rng(0).standard_normal((6, 2)).astype(np.float32)
SPLITS = [0, 2, 2, 5, 6]


def ragged(x):
    return tf.RaggedTensor.from_row_splits(x, SPLITS)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ragged(x).to_tensor(),
        lambda x: ragged(x).to_tensor(7.0, shape=[None, 2, None]),
        lambda x: ragged(x).to_tensor(shape=[5, 4, 2]),
        lambda x: tf.RaggedTensor.from_value_rowids(x, [0, 0, 2, 2, 2, 3]).to_tensor(),
        lambda x: tf.RaggedTensor.from_row_splits(ragged(x), [0, 1, 4]).to_tensor(),
        lambda x: tf.reduce_max(ragged(x), axis=1),
    ],
)
def test_rows(function):
    assert_agrees(function, ROWS)


def test_rows_by_their_numbers():
    """TensorFlow's own gradient fails here."""
    assert_agrees(lambda x: tf.gather(ragged(x), [3, 0, 0]).to_tensor(), ROWS, grad=False)
    assert_agrees(lambda x: tf.gather(ragged(x), [[3, 0], [2, 2]]).to_tensor(), ROWS, grad=False)


def test_the_result_is_a_pair_of_arrays():
    out = anyjax.from_tensorflow(lambda x: {"rows": ragged(x * 2)}, ROWS)(ROWS)["rows"]
    np.testing.assert_array_equal(out.flat_values, ROWS * 2)
    assert [x.tolist() for x in out.nested_row_splits] == [SPLITS]


def test_rows_that_are_traced():
    model = anyjax.from_tensorflow(
        lambda x, ends: tf.RaggedTensor.from_row_splits(x, ends).to_tensor(shape=[4, 3, 2]),
        ROWS,
        np.array(SPLITS),
    )
    got = jax.jit(lambda *xs: model.apply({}, *xs))(ROWS, np.array(SPLITS))
    np.testing.assert_array_equal(got, ragged(ROWS).to_tensor(shape=[4, 3, 2]))
    without_shape = anyjax.from_tensorflow(
        lambda x, ends: tf.RaggedTensor.from_row_splits(x, ends).to_tensor(), ROWS, np.array(SPLITS)
    )
    with pytest.raises(anyjax.errors.DataDependent, match="longest row"):
        jax.jit(lambda *xs: without_shape.apply({}, *xs))(ROWS, np.array(SPLITS))
