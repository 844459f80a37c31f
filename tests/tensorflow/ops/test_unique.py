"""Different values and their places: under jit only where they are known."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tojax
from tojax.errors import DataDependent

raw = tf.raw_ops
IDS = np.array([5, 2, 5, 9, 2, 5], np.int32)
GRID = np.array([[1, 0, 1], [1, 0, 1], [2, 0, 2]], np.int32)
PARTS = np.array([2, 0, 2, 0, 2], np.int32)
X = np.arange(10, dtype=np.float32).reshape(5, 2)
CASES = [
    (lambda x: tf.unique(x), IDS),
    (lambda x: tf.unique(x), np.array([1, np.nan, 0.0, -0.0, np.nan], np.float32)),
    (lambda x: tf.unique_with_counts(x, tf.int64), IDS),
    (lambda x: tf.unique(x), IDS[:0]),
    (lambda x: raw.UniqueV2(x=x, axis=[0]), GRID),
    (lambda x: raw.UniqueWithCountsV2(x=x, axis=[1]), GRID),
    (lambda x: raw.UniqueV2(x=x, axis=np.zeros(0, np.int64)), IDS),
    (lambda x: raw.ListDiff(x=x, y=[2, 7]), IDS),
    (lambda p: tf.dynamic_partition(X, p, 3), PARTS),
    (lambda p: tf.dynamic_partition(X[:4].reshape(2, 2, 2), p, 2), np.array([[0, 1], [1, 1]])),
]


@pytest.mark.parametrize("function, array", CASES)
def test_outside_of_jit(function, array):
    array = array.astype(np.int32) if array.dtype == np.int64 else array
    model = tojax.from_tensorflow(function, array)
    with pytest.raises(DataDependent, match="has to be known"):
        jax.jit(lambda array: model.apply({}, array))(array)
    got, want = model.apply({}, array), function(tf.constant(array))
    for mine, other in zip(got, want):
        np.testing.assert_array_equal(mine, other)


def test_known():
    """Known partitions serve traced rows, gradients included."""
    from tests.tensorflow.agree import agree

    agree(lambda x: tf.dynamic_partition(x, PARTS, 3), X)
