"""Padding."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

raw = tf.raw_ops
X = np.arange(12, dtype=np.float32).reshape(3, 4)
PAIRS = [[1, 2], [0, 3]]


@pytest.mark.parametrize("array", [X, X.astype(np.int32), X > 3, X[:0], X * (1 + 1j)])
def test_pad(array):
    agree(lambda x: tf.pad(x, PAIRS), array)


def test_pad_with_a_value():
    agree(
        lambda x, c: raw.PadV2(input=x, paddings=PAIRS, constant_values=c), X, np.float32(-np.inf)
    )
    agree(lambda x: tf.pad(x, np.zeros((0, 2), int), constant_values=3), np.float32(1))


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_mirror_pad(mode):
    agree(lambda x: tf.pad(x, PAIRS, mode), X)
    grad = lambda g: raw.MirrorPadGrad(input=g, paddings=[[1, 1], [0, 2]], mode=mode)
    agree(grad, np.arange(24, dtype=np.float32).reshape(4, 6))
