"""Comparisons and logic."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

R = tf.raw_ops
X = np.array([[-1.0, np.nan, 0.0], [np.inf, 2.0, -0.0]], np.float32)
Y = np.array([0.0, np.nan, 1.0], np.float32)


@pytest.mark.parametrize(
    "name",
    ["Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"],
)
def test_comparisons(name):
    agree(lambda x, y: getattr(R, name)(x=x, y=y), X, Y)
    agree(lambda x: getattr(R, name)(x=x, y=2), np.arange(4, dtype=np.int32))


@pytest.mark.parametrize("name", ["Equal", "NotEqual"])
def test_shapes_that_do_not_broadcast(name):
    compare = lambda x, y: getattr(R, name)(x=x, y=y, incompatible_shape_error=False)
    agree(compare, X, Y[:2])
    agree(compare, X, Y)


@pytest.mark.parametrize("name", ["IsFinite", "IsInf", "IsNan"])
def test_classes_of_numbers(name):
    agree(lambda x: getattr(R, name)(x=x), X)


def test_logic():
    a, b = np.array([[True], [False]]), np.array([True, False])
    agree(tf.logical_and, a, b)
    agree(tf.logical_or, a, b)
    agree(tf.math.logical_xor, a, b)
    agree(tf.logical_not, a)


def test_nearly_equal():
    agree(lambda x, y: R.ApproximateEqual(x=x, y=y, tolerance=0.5), X, X + np.float32(0.25))


def test_buckets():
    boundaries = [-1.0, 0.0, 2.0]
    agree(
        lambda x: R.Bucketize(input=x, boundaries=boundaries),
        np.array([-3, -1, 0.5, 2, 9], np.float32),
    )
    agree(lambda x: R.Bucketize(input=x, boundaries=boundaries), np.arange(-2, 4, dtype=np.int32))
