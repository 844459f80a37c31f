"""Biases."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("layout, count", [("NHWC", 4), ("NCHW", 3)])
def test_bias_add(layout, count):
    b = np.arange(count, dtype=np.float32)
    agree(lambda x, b: tf.nn.bias_add(x, b, data_format=layout), X, b)
    agree(lambda g: tf.raw_ops.BiasAddGrad(out_backprop=g, data_format=layout), X)


def test_first_version():
    agree(lambda x, b: tf.raw_ops.BiasAddV1(value=x, bias=b), X, X[0, 0])
    agree(lambda x, b: tf.nn.bias_add(x, b), X.astype(np.int32), np.arange(4, dtype=np.int32))
