"""Turning arrays round."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

raw = tf.raw_ops
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("axes", [[0], [-1, 1], np.zeros(0, int)])
def test_reverse(axes):
    agree(lambda x: tf.reverse(x, axes), X)


def test_reverse_v1():
    agree(lambda x: raw.Reverse(tensor=x, dims=[True, False, True]), X)


@pytest.mark.parametrize("shift, axis", [(1, 0), (-2, -1), ([1, 3], [0, 2]), ([1, 1], [1, 1])])
def test_roll(shift, axis):
    agree(lambda x: tf.roll(x, shift, axis), X)
    agree(lambda x, s: tf.roll(x, s, axis), X, np.array(shift, np.int32))


@pytest.mark.parametrize("axes", [(1, 0), (2, 1), (0, 2)])
def test_reverse_sequence(axes):
    along, batch = axes
    size, longest = X.shape[batch], X.shape[along]
    lengths = np.minimum(np.arange(size, dtype=np.int32), longest)
    agree(lambda x, n: tf.reverse_sequence(x, n, along, batch), X, lengths)
