"""Constants, ranges, one-hot vectors and casts."""

import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.dtypes import x64
from anyjax.errors import Unsupported
from tests.tensorflow.agree import assert_agrees

pytestmark = pytest.mark.sample(every=10)

raw = tf.raw_ops
LONG = 1 << 17
IDS = np.array([[0, 2, -1], [3, 9, 1]], np.int32)


def test_fill():
    assert_agrees(lambda x: tf.fill([2, 3], x), np.float32(2.5))
    assert_agrees(lambda x: tf.fill([0], x), np.int32(3))
    assert_agrees(lambda x: x + tf.fill([LONG], 2.0)[: tf.shape(x)[0]], np.ones(3, np.float32))
    assert_agrees(
        lambda x: x + raw.Empty(shape=[3], dtype=tf.float32, init=True), np.ones(3, np.float32)
    )


@pytest.mark.parametrize("ends", [(0, LONG, 1), (5, -2 * LONG, -2), (-0.5, LONG, 0.75)])
def test_large_range(ends):
    assert_agrees(lambda x: tf.cast(tf.range(*ends), tf.float32) * x, np.float32(1), depth=LONG)


@pytest.mark.parametrize("num", [1, 2, 7])
def test_linspace(num):
    assert_agrees(
        lambda a, b: raw.LinSpace(start=a, stop=b, num=num), np.float32(-1), np.float32(2)
    )
    assert_agrees(
        lambda a, b: tf.linspace(a, b, num, axis=-1), np.float32([-1, 2]), np.float32([2, 2])
    )


@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
def test_one_hot(axis):
    assert_agrees(lambda i: tf.one_hot(i, 4, axis=axis), IDS)
    assert_agrees(lambda i: tf.one_hot(i, 4, 5, 7, axis), IDS)


def test_one_hot_values():
    assert_agrees(lambda i, a, b: tf.one_hot(i, 3, a, b), IDS, np.float32(2), np.float32(-1))
    assert_agrees(lambda i: tf.one_hot(i, 300), np.array([0, 255], np.uint8))
    assert_agrees(lambda i: tf.one_hot(i, 0), IDS)
    assert_agrees(lambda i: tf.one_hot(i, 3, True, False), np.int32(1))


def test_empty_is_zeros_and_may_decide_a_shape():
    empty = lambda: raw.Empty(shape=[2], dtype=tf.int32, init=True)
    assert_agrees(lambda x: x + tf.zeros(empty() + 1), np.ones((1, 1), np.float32))


# Casts.


X = np.array([0.0, -0.0, 0.5, -0.5, 1.9, -1.9, 100.25], np.float32)
Z = np.array([1j, 0, 1, -2.5 + 1j], np.complex64)
KINDS = [tf.float16, tf.bfloat16, tf.float32, tf.int32, tf.int64, tf.int8, tf.bool, tf.complex64]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("array", [X, X.astype(np.int32), X > 0.2, Z, X.astype(np.float16)])
def test_cast(array, kind):
    assert_agrees(lambda x: tf.cast(x, kind), array)


def test_special_values():
    odd = np.array([np.nan, np.inf, -np.inf, 1e20, -1e-30], np.float32)
    assert_agrees(lambda x: tf.cast(x, tf.float16), odd)
    assert_agrees(lambda x: tf.cast(x, tf.bool), odd)
    assert_agrees(lambda x: tf.cast(x, tf.uint8), np.array([-1, 256, 1000, 3], np.int32))


@pytest.mark.parametrize("kind", [tf.bfloat16, tf.float16])
def test_truncate(kind):
    x = np.array([1.0009, -3.14159, 1e-3, 65000.0, 0], np.float32)
    assert_agrees(lambda x: raw.Cast(x=x, DstT=kind, Truncate=True), x, grad=False)


@pytest.mark.parametrize("kind", [tf.int32, tf.uint8, tf.int16, tf.bfloat16])
def test_bitcast(kind):
    assert_agrees(lambda x: tf.bitcast(x, kind), X, grad=False)
    assert_agrees(lambda x: tf.bitcast(tf.bitcast(x, kind), tf.float32), X, grad=False)


def test_bitcast_of_constants():
    constant = tf.constant([1.5, 2.0])
    assert_agrees(
        lambda x: x + tf.cast(tf.bitcast(constant, tf.int16)[1, 0], tf.float32), X, grad=False
    )
    wide = tf.constant([1, 2])
    assert_agrees(lambda x: x + tf.cast(tf.bitcast(wide, tf.int64), tf.float32), X, grad=False)
    assert_agrees(lambda x: x + tf.math.real(tf.bitcast(constant, tf.complex64)), X, grad=False)


@pytest.mark.skipif(x64(), reason="nothing is narrowed")
def test_bitcast_of_what_jax_narrows():
    model = anyjax.from_tensorflow(lambda x: tf.bitcast(x, tf.float32), np.arange(3))
    with pytest.raises(Unsupported, match="int64 to float32"):
        model(np.arange(3))
