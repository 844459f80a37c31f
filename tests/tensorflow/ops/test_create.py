"""Constants, ranges, one-hot vectors."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

raw = tf.raw_ops
LONG = 1 << 17
IDS = np.array([[0, 2, -1], [3, 9, 1]], np.int32)


def test_fill():
    agree(lambda x: tf.fill([2, 3], x), np.float32(2.5))
    agree(lambda x: tf.fill([0], x), np.int32(3))
    agree(lambda x: x + tf.fill([LONG], 2.0)[: tf.shape(x)[0]], np.ones(3, np.float32))
    agree(lambda x: x + raw.Empty(shape=[3], dtype=tf.float32, init=True), np.ones(3, np.float32))


@pytest.mark.parametrize("ends", [(0, LONG, 1), (5, -2 * LONG, -2), (-0.5, LONG, 0.75)])
def test_large_range(ends):
    agree(lambda x: tf.cast(tf.range(*ends), tf.float32) * x, np.float32(1), depth=LONG)


@pytest.mark.parametrize("num", [1, 2, 7])
def test_linspace(num):
    agree(lambda a, b: raw.LinSpace(start=a, stop=b, num=num), np.float32(-1), np.float32(2))
    agree(lambda a, b: tf.linspace(a, b, num, axis=-1), np.float32([-1, 2]), np.float32([2, 2]))


@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
def test_one_hot(axis):
    agree(lambda i: tf.one_hot(i, 4, axis=axis), IDS)
    agree(lambda i: tf.one_hot(i, 4, 5, 7, axis), IDS)


def test_one_hot_values():
    agree(lambda i, a, b: tf.one_hot(i, 3, a, b), IDS, np.float32(2), np.float32(-1))
    agree(lambda i: tf.one_hot(i, 300), np.array([0, 255], np.uint8))
    agree(lambda i: tf.one_hot(i, 0), IDS)
    agree(lambda i: tf.one_hot(i, 3, True, False), np.int32(1))


def test_empty_is_zeros_and_may_decide_a_shape():
    empty = lambda: raw.Empty(shape=[2], dtype=tf.int32, init=True)
    agree(lambda x: x + tf.zeros(empty() + 1), np.ones((1, 1), np.float32))
