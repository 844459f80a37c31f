"""Dilation2D and its gradients' operators."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

RNG = np.random.default_rng(1)
X = RNG.standard_normal((2, 6, 5, 3)).astype(np.float32)
W = RNG.standard_normal((3, 2, 3)).astype(np.float32)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides, rates", [(1, 1), (2, 1), (1, 2)])
def test_dilation2d(padding, strides, rates):
    how = {"strides": [1, strides, strides, 1], "padding": padding}
    run = lambda x, w: tf.nn.dilation2d(
        x, w, data_format="NHWC", dilations=[1, rates, rates, 1], **how
    )
    agree(run, X, W)
    if padding == "SAME":
        agree(run, np.zeros_like(X), np.zeros_like(W))  # ties
    back = {"rates": [1, rates, rates, 1], **how}
    y = run(X, W).numpy()
    for op in (tf.raw_ops.Dilation2DBackpropInput, tf.raw_ops.Dilation2DBackpropFilter):
        agree(lambda x, w, y, op=op: op(input=x, filter=w, out_backprop=y, **back), X, W, y,
              grad=False)  # fmt: skip


def test_erosion2d_and_whole_numbers():
    run = lambda x, w: tf.nn.erosion2d(x, w, [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1])
    agree(run, X, W)
    run = lambda x, w: tf.nn.dilation2d(x, w, [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1])
    agree(run, (X * 9).astype(np.int32), (W * 9).astype(np.int32))
