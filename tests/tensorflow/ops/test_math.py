"""Elementwise arithmetic."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

X = np.array([[-2.0, -0.5, 0.0], [0.25, 1.0, 3.0]], np.float32)


@pytest.mark.parametrize("function", [tf.sin, tf.exp, tf.tanh, tf.sigmoid, tf.square, tf.negative])
def test_unary(function):
    agree(function, X)
