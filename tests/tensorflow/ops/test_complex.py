"""Complex numbers and their parts."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

Z = np.array([1 + 2j, -0.5 + 0.25j, -1.5 - 1j, 0.5 - 3j], np.complex64)


@pytest.mark.parametrize("function", [tf.math.real, tf.math.imag, tf.math.angle, tf.math.conj, abs])
def test_parts(function):
    agree(function, Z)


def test_the_gradient_of_a_modulus_at_0_is_0():
    agree(tf.abs, np.array([0, 3 + 4j], np.complex64))


def test_from_parts():
    agree(tf.complex, Z.real, Z.imag)
    agree(tf.complex, Z.real[:, None], Z.imag)


def test_sign():
    agree(lambda x: tf.raw_ops.Sign(x=x), np.array([0, 3 + 4j], np.complex64))
