"""Gradients of elementwise functions, as operators."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

NAMES = ["InvGrad", "ReciprocalGrad", "RsqrtGrad", "SigmoidGrad", "SqrtGrad", "TanhGrad"]
Y = np.array([0.25, -0.5, 2.0], np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_real(name):
    agree(lambda y, dy: getattr(tf.raw_ops, name)(y=y, dy=dy), Y, Y[::-1].copy())


@pytest.mark.parametrize("name", NAMES)
def test_complex(name):
    z = (Y + 1j * Y[::-1]).astype(np.complex64)
    agree(lambda y, dy: getattr(tf.raw_ops, name)(y=y, dy=dy), z, z * 1j)


def test_a_gradient_inside_of_the_function():
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.tanh(tf.sigmoid(x) * tf.math.rsqrt(x)) / tf.sqrt(x)
        return tape.gradient(y, x)

    agree(function, np.array([0.5, 1.0, 2.0], np.float32))
