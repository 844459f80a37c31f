"""Counting into bins."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

raw = tf.raw_ops
IDS = np.array([[0, 2, 2, 7], [1, 1, 0, 3]], np.int32)
W = np.array([[1.0, 0.5, 2.0, 4.0], [0.25, 1.0, -1.0, 3.0]], np.float32)


@pytest.mark.parametrize("binary", [False, True])
def test_dense_bincount(binary):
    call = lambda i, w: raw.DenseBincount(input=i, size=5, weights=w, binary_output=binary)
    for ids, weights in ((IDS, W), (IDS[0], W[0])):
        agree(lambda i: call(i, np.zeros(0, np.float32)), ids, grad=False)
        agree(lambda i: call(i, np.zeros(0, np.int32)), ids, grad=False)
        if not binary:
            agree(call, ids, weights, grad=False)


def test_bincount():
    agree(lambda i, w: raw.Bincount(arr=i, size=4, weights=w), IDS, W, grad=False)
    agree(lambda i: raw.Bincount(arr=i, size=9, weights=tf.constant([], tf.int32)), IDS)


def test_histogram():
    values = np.array([[-1.0, 0.0, 1.5], [2.0, 5.0, 15.0]], np.float32)
    ends = np.array([0.0, 5.0], np.float32)
    agree(lambda x: tf.histogram_fixed_width(x, ends, 5), values, grad=False)
    call = lambda x, r: tf.histogram_fixed_width(x, r, 4, tf.int64)
    agree(call, values.astype(np.int32), ends.astype(np.int32))
