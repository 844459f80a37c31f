"""Ragged tensors whose rows are known."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tojax
from tests.tensorflow.agree import agree

X = np.random.default_rng(0).standard_normal((6, 2)).astype(np.float32)
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
    agree(function, X)


def test_rows_by_their_numbers():
    """TensorFlow's own gradient fails here."""
    agree(lambda x: tf.gather(ragged(x), [3, 0, 0]).to_tensor(), X, grad=False)
    agree(lambda x: tf.gather(ragged(x), [[3, 0], [2, 2]]).to_tensor(), X, grad=False)


def test_the_result_is_a_pair_of_arrays():
    out = tojax.from_tensorflow(lambda x: {"rows": ragged(x * 2)}, X)(X)["rows"]
    np.testing.assert_array_equal(out.flat_values, X * 2)
    assert [x.tolist() for x in out.nested_row_splits] == [SPLITS]


def test_rows_that_are_traced():
    model = tojax.from_tensorflow(
        lambda x, ends: tf.RaggedTensor.from_row_splits(x, ends).to_tensor(shape=[4, 3, 2]),
        X,
        np.array(SPLITS),
    )
    got = jax.jit(lambda *xs: model.apply({}, *xs))(X, np.array(SPLITS))
    np.testing.assert_array_equal(got, ragged(X).to_tensor(shape=[4, 3, 2]))
    plain = tojax.from_tensorflow(
        lambda x, ends: tf.RaggedTensor.from_row_splits(x, ends).to_tensor(), X, np.array(SPLITS)
    )
    with pytest.raises(tojax.errors.DataDependent, match="longest row"):
        jax.jit(lambda *xs: plain.apply({}, *xs))(X, np.array(SPLITS))
