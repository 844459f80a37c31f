"""Order: the largest elements, search, distinct values."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import DataDependent
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

raw = tf.raw_ops
X = np.array([[3.0, 1.0, 3.0, -0.0], [0.0, -7.0, 2.0, 2.0]], np.float32)
ODD = np.array([[np.nan, 1, np.inf], [-np.inf, np.nan, -np.inf], [np.nan] * 3], np.float32)


@pytest.mark.parametrize("array", [X, X.astype(np.int32), X.astype(np.float16)])
def test_top_k(array):
    assert_agrees(lambda x: tf.math.top_k(x, 3), array)
    assert_agrees(lambda x: tf.math.top_k(x, 0), array)
    assert_agrees(lambda x: tf.math.top_k(x, 2, index_type=tf.int64), array, grad=False)


def test_approx_top_k():
    """Exact on a CPU."""
    assert_agrees(lambda x: tf.math.approx_max_k(x, 2), X)
    low = anyjax.from_tensorflow(lambda x: tf.math.approx_min_k(x, 2), X)
    assert [x.tolist() for x in low(X)] == [[[0, 1], [-7, 0]], [[3, 1], [1, 0]]]  # not on its CPU


def test_sorted():
    assert_agrees(lambda x: tf.sort(x, axis=0), X)
    assert_agrees(lambda x: tf.sort(x, direction="DESCENDING"), X)
    assert_agrees(lambda x: tf.argsort(x), X)


ZEROS = np.array([[0, -0.0, 1, -0.0, 0], [-0.0, 0, -1, 0, -0.0]], np.float32)
STABLE = {
    "top_k": lambda x: tf.math.top_k(x, 3),
    "argsort": tf.argsort,
    "argsort, descending": lambda x: tf.argsort(x, direction="DESCENDING", stable=True),
    "argsort, columns": lambda x: tf.argsort(x, axis=0),
    "sort": lambda x: tf.math.reciprocal(tf.sort(x)),  # tells which zero it is
    "argmax": lambda x: (tf.argmax(x, -1), tf.argmin(x, -1)),
}


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("name", STABLE)
def test_zeros_of_either_sign_are_equal(name, dtype):
    assert_agrees(STABLE[name], ZEROS.astype(dtype), grad=name == "top_k")


@pytest.mark.parametrize("function", [tf.argmax, tf.argmin])
@pytest.mark.parametrize("array", [X, X.astype(np.int32), ODD, X > 1], ids="fiob")
def test_extremes(function, array):
    assert_agrees(lambda x: (function(x, 0), function(x, -1, tf.int32)), array)


@pytest.mark.parametrize("n, reverse", [(0, False), (3, False), (1, True), (2, True)])
def test_nth_element(n, reverse):
    assert_agrees(lambda x: raw.NthElement(input=x, n=n, reverse=reverse), X)
    assert_agrees(lambda x, n: raw.NthElement(input=x, n=n, reverse=reverse), X, np.int32(n))


@pytest.mark.parametrize("side", ["left", "right"])
def test_search(side):
    rows = np.array([[0, 1, 1, 4], [-2, 0, 0, 0]], np.float32)
    values = np.array([[1, 9, -1], [0, -2, -0.0]], np.float32)
    assert_agrees(lambda a, v: tf.searchsorted(a, v, side), rows, values)
    assert_agrees(lambda a, v: tf.searchsorted(a, v, side, tf.int64), rows[0], values[0])
    assert_agrees(
        lambda a, v: tf.searchsorted(a, v, side), rows.astype(np.int32), values.astype(np.int32)
    )


@pytest.mark.parametrize("side", ["left", "right"])
def test_search_with_nan(side):
    """Also in the middle, where the answer depends on which elements are looked at."""
    rows = np.array([[0, 1, 2, np.nan], [0, np.nan, 1, 2], [np.nan] * 4, [-1, -0.0, 0, 3]], "f4")
    values = np.tile(np.array([np.nan, 0, -0.0, 1.5, np.inf, -np.inf], np.float32), (4, 1))
    assert_agrees(lambda a, v: tf.searchsorted(a, v, side), rows, values)


def test_bucketize():
    for array in (X, X.astype(np.int32), ODD):
        assert_agrees(lambda x: raw.Bucketize(input=x, boundaries=[-1, 0, 2.5, 3]), array)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("target", [[2, 1, 0, 3], [0, 0, 3, 9], [3, -1, 1, 2]])
def test_in_top_k(k, target):
    p = [[0.1, 0.5, 0.5, 0.2], [np.inf, 1, 0, 2], [3, 2, 1, np.nan], [1, 2, 3, 4]]
    p, target = np.array(p, np.float32), np.array(target, np.int32)
    assert_agrees(lambda x, t: tf.math.in_top_k(t, x, k), p, target)
    assert_agrees(lambda x, t: raw.InTopK(predictions=x, targets=t, k=k), p, target)


# Distinct values and their places: under jit only where they are known.


IDS = np.array([5, 2, 5, 9, 2, 5], np.int32)
GRID = np.array([[1, 0, 1], [1, 0, 1], [2, 0, 2]], np.int32)
PARTS = np.array([2, 0, 2, 0, 2], np.int32)
ROWS = np.arange(10, dtype=np.float32).reshape(5, 2)
CASES = [
    (lambda x: tf.unique(x), IDS),
    (lambda x: tf.unique(x), np.array([1, np.nan, 0.0, -0.0, np.nan], np.float32)),
    (lambda x: tf.unique_with_counts(x, tf.int64), IDS),
    (lambda x: tf.unique(x), IDS[:0]),
    (lambda x: raw.UniqueV2(x=x, axis=[0]), GRID),
    (lambda x: raw.UniqueWithCountsV2(x=x, axis=[1]), GRID),
    (lambda x: raw.UniqueV2(x=x, axis=np.zeros(0, np.int64)), IDS),
    (lambda x: raw.ListDiff(x=x, y=[2, 7]), IDS),
    (lambda p: tf.dynamic_partition(ROWS, p, 3), PARTS),
    (lambda p: tf.dynamic_partition(ROWS[:4].reshape(2, 2, 2), p, 2), np.array([[0, 1], [1, 1]])),
]


@pytest.mark.parametrize("function, array", CASES)
def test_outside_of_jit(function, array):
    array = array.astype(np.int32) if array.dtype == np.int64 else array
    model = anyjax.from_tensorflow(function, array)
    with pytest.raises(DataDependent, match="has to be known"):
        jax.jit(lambda array: model.apply({}, array))(array)
    got, want = model.apply({}, array), function(tf.constant(array))
    for mine, theirs in zip(got, want):
        np.testing.assert_array_equal(mine, theirs)


def test_known():
    """Known partitions serve traced rows, gradients included."""
    assert_agrees(lambda x: tf.dynamic_partition(x, PARTS, 3), ROWS)
