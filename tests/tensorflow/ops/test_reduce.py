"""Reductions over axes, running sums and products, counts in bins."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import DataDependent
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
FLOATS = {
    "Sum": tf.reduce_sum, "Mean": tf.reduce_mean, "Max": tf.reduce_max, "Min": tf.reduce_min,
    "Prod": tf.reduce_prod, "EuclideanNorm": tf.math.reduce_euclidean_norm,
}  # fmt: skip


@pytest.mark.parametrize("axis", [None, 0, -1, [0, 2], [-1, 1], []])
@pytest.mark.parametrize("name", FLOATS)
def test_axes(name, axis):
    assert_agrees(lambda x: FLOATS[name](x, axis), X)


@pytest.mark.parametrize("name", FLOATS)
def test_kept_axes(name):
    assert_agrees(lambda x: FLOATS[name](x, [0, -1], keepdims=True), X)


@pytest.mark.parametrize("name", FLOATS)
def test_of_a_scalar(name):
    assert_agrees(FLOATS[name], np.float32(1.5))


@pytest.mark.parametrize("name", ["Max", "Min"])
def test_ties_share_the_gradient(name):
    assert_agrees(lambda x: FLOATS[name](x, 1), np.array([[1, 2, 2, 1], [3, 3, 3, 3]], np.float32))


def test_a_product_with_zeros():
    assert_agrees(lambda x: tf.reduce_prod(x, 1), np.array([[1, 0, 2], [0, 0, 3]], np.float32))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8])
def test_of_integers(name, dtype):
    x = np.array([[-7, 2, 1], [4, 5, -6]]).astype(dtype)
    if name == "EuclideanNorm":
        x = x.astype(np.int32)
    assert_agrees(lambda x: FLOATS[name](x, 1), x)


@pytest.mark.parametrize("name", ["Sum", "Mean", "Prod", "EuclideanNorm"])
def test_of_complex_numbers(name):
    z = (X[0] + 1j * X[1]).astype(np.complex64)
    assert_agrees(lambda x: FLOATS[name](x, 1), z, grad=name != "EuclideanNorm")


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_of_short_floats(name, dtype):
    assert_agrees(lambda x: FLOATS[name](x, 1), X.astype(dtype))


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min", "Prod"])
def test_of_nothing(name):
    assert_agrees(lambda x: FLOATS[name](x, 0), np.zeros((0, 3), np.float32), vmap=False)
    assert_agrees(lambda x: FLOATS[name](x, 1), np.zeros((0, 3), np.float32), vmap=False)


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min", "Prod"])
def test_of_odd_numbers(name):
    x = np.array([[np.nan, 1, 2], [np.inf, 1, 0], [-np.inf, np.inf, 3]], np.float32)
    assert_agrees(lambda x: FLOATS[name](x, 1), x, grad=False)


@pytest.mark.parametrize("function", [tf.reduce_all, tf.reduce_any])
@pytest.mark.parametrize("axis", [None, 0, [], -1])
def test_logic(function, axis):
    assert_agrees(lambda x: function(x, axis), np.array([[True, False], [True, True]]))


@pytest.mark.parametrize("function", [tf.math.reduce_std, tf.math.reduce_variance])
def test_made_of_these(function):
    assert_agrees(function, X)


def test_a_traced_axis():
    model = anyjax.from_tensorflow(tf.reduce_sum, X, np.int32(1))
    with pytest.raises(DataDependent):
        jax.jit(lambda axis: model.apply({}, X, axis))(np.int32(1))


# Running sums, products and log-sums.


FUNCTIONS = {
    "sum": tf.cumsum, "product": tf.math.cumprod, "logsumexp": tf.math.cumulative_logsumexp,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
def test_running(name, axis, exclusive, reverse):
    grad = not (name == "logsumexp" and exclusive)  # TensorFlow's is NaN
    assert_agrees(lambda x: FUNCTIONS[name](x, axis, exclusive, reverse), X, grad=grad)


def test_running_of_integers():
    assert_agrees(tf.cumsum, np.arange(-3, 4, dtype=np.int8) * 30)
    assert_agrees(tf.math.cumprod, np.arange(-3, 4, dtype=np.int32))


def test_running_of_nothing():
    assert_agrees(tf.cumsum, np.zeros((0, 3), np.float32), vmap=False)


# Counts in bins.


raw = tf.raw_ops
IDS = np.array([[0, 2, 2, 7], [1, 1, 0, 3]], np.int32)
WEIGHTS = np.array([[1.0, 0.5, 2.0, 4.0], [0.25, 1.0, -1.0, 3.0]], np.float32)


@pytest.mark.parametrize("binary", [False, True])
def test_dense_bincount(binary):
    call = lambda i, w: raw.DenseBincount(input=i, size=5, weights=w, binary_output=binary)
    for ids, weights in ((IDS, WEIGHTS), (IDS[0], WEIGHTS[0])):
        assert_agrees(lambda i: call(i, np.zeros(0, np.float32)), ids, grad=False)
        assert_agrees(lambda i: call(i, np.zeros(0, np.int32)), ids, grad=False)
        if not binary:
            assert_agrees(call, ids, weights, grad=False)


def test_bincount():
    assert_agrees(lambda i, w: raw.Bincount(arr=i, size=4, weights=w), IDS, WEIGHTS, grad=False)
    assert_agrees(lambda i: raw.Bincount(arr=i, size=9, weights=tf.constant([], tf.int32)), IDS)


def test_histogram():
    values = np.array([[-1.0, 0.0, 1.5], [2.0, 5.0, 15.0]], np.float32)
    ends = np.array([0.0, 5.0], np.float32)
    assert_agrees(lambda x: tf.histogram_fixed_width(x, ends, 5), values, grad=False)
    call = lambda x, r: tf.histogram_fixed_width(x, r, 4, tf.int64)
    assert_agrees(call, values.astype(np.int32), ends.astype(np.int32))
