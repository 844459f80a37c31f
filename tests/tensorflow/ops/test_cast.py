"""From one dtype to another."""

import numpy as np
import pytest
import tensorflow as tf

import tojax
from tests.tensorflow.agree import agree
from tojax.errors import Unsupported

raw = tf.raw_ops
X = np.array([0.0, -0.0, 0.5, -0.5, 1.9, -1.9, 100.25], np.float32)
Z = np.array([1j, 0, 1, -2.5 + 1j], np.complex64)
KINDS = [tf.float16, tf.bfloat16, tf.float32, tf.int32, tf.int64, tf.int8, tf.bool, tf.complex64]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("array", [X, X.astype(np.int32), X > 0.2, Z, X.astype(np.float16)])
def test_cast(array, kind):
    agree(lambda x: tf.cast(x, kind), array)


def test_special_values():
    odd = np.array([np.nan, np.inf, -np.inf, 1e20, -1e-30], np.float32)
    agree(lambda x: tf.cast(x, tf.float16), odd)
    agree(lambda x: tf.cast(x, tf.bool), odd)
    agree(lambda x: tf.cast(x, tf.uint8), np.array([-1, 256, 1000, 3], np.int32))


@pytest.mark.parametrize("kind", [tf.bfloat16, tf.float16])
def test_truncate(kind):
    x = np.array([1.0009, -3.14159, 1e-3, 65000.0, 0], np.float32)
    agree(lambda x: raw.Cast(x=x, DstT=kind, Truncate=True), x, grad=False)


@pytest.mark.parametrize("kind", [tf.int32, tf.uint8, tf.int16, tf.bfloat16])
def test_bitcast(kind):
    agree(lambda x: tf.bitcast(x, kind), X, grad=False)
    agree(lambda x: tf.bitcast(tf.bitcast(x, kind), tf.float32), X, grad=False)


def test_bitcast_of_constants():
    known = tf.constant([1.5, 2.0])
    agree(lambda x: x + tf.cast(tf.bitcast(known, tf.int16)[1, 0], tf.float32), X, grad=False)
    wide = tf.constant([1, 2])
    agree(lambda x: x + tf.cast(tf.bitcast(wide, tf.int64), tf.float32), X, grad=False)
    agree(lambda x: x + tf.math.real(tf.bitcast(known, tf.complex64)), X, grad=False)


def test_bitcast_of_what_jax_narrows():
    model = tojax.from_tensorflow(lambda x: tf.bitcast(x, tf.float32), np.arange(3))
    with pytest.raises(Unsupported, match="int64 to float32"):
        model(np.arange(3))
