"""Putting an array together from parts."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tojax
from tests.tensorflow.agree import agree
from tojax.errors import DataDependent

X = np.arange(12, dtype=np.float32).reshape(6, 2)


@pytest.mark.parametrize("function", [tf.dynamic_stitch, tf.raw_ops.ParallelDynamicStitch])
def test_stitch(function):
    call = lambda at: lambda x: function(indices=at, data=[x[:2], x[2:4]])
    agree(call([[0, 3], [1, 2]]), X)
    agree(
        lambda x: function(
            indices=[2, [[0, 1], [4, 3]]], data=[x[0], tf.reshape(x[:4], [2, 2, 2])]
        ),
        X,
    )


def test_some_twice():
    """TensorFlow gives a gradient to rows that another one has replaced; they have none."""
    agree(lambda x: tf.dynamic_stitch([[0, 1], [1, 2]], [x[:2], x[2:4]]), X, grad=False)
    agree(lambda x: tf.dynamic_stitch([[], []], [x[:0], x[:0]]), X)


def test_traced_places():
    at = np.array([1, 0], np.int32)
    model = tojax.from_tensorflow(lambda x, i: tf.dynamic_stitch([i], [x[:2]]), X, at)
    with pytest.raises(DataDependent, match="indices of DynamicStitch"):
        jax.jit(lambda at: model.apply({}, X, at))(at)
    np.testing.assert_array_equal(model.apply({}, X, at), X[at])
