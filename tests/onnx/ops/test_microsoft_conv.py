"""Fused convolutions of onnxruntime, and those with channels last."""

import numpy as np
import pytest

from tests.onnx.agree import normal as random
from tests.onnx.with_onnxruntime import assert_agrees, converted, node
from tests.tolerance import assert_close

MS = "com.microsoft::"
ACTIVATIONS = {"Relu": [], "LeakyRelu": [0.2], "Clip": [-0.5, 0.7], "HardSigmoid": [0.2, 0.4]}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_fused_conv(activation):
    inputs = {"X": random(1, 4, 6, 6), "W": random(3, 4, 3, 3), "B": random(3)}
    how = dict(activation=activation, pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    params = ACTIVATIONS[activation]
    how |= dict(activation_params=params) if params else {}
    assert_agrees(MS + "FusedConv", inputs, reduction=64, **how)


def test_fused_conv_with_a_sum():
    inputs = {"X": random(1, 4, 6, 6), "W": random(3, 4, 3, 3), "B": random(3)}
    inputs["Z"] = random(1, 3, 6, 6)
    how = dict(activation="Relu", pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    assert_agrees(MS + "FusedConv", inputs, reduction=64, **how)
    last = {k: np.moveaxis(v, 1, -1) if k in "XZ" else v for k, v in inputs.items()}
    got = converted(node(MS + "NhwcFusedConv", last, **how), last)[0]
    want = converted(node(MS + "FusedConv", inputs, **how), inputs)[0]
    assert_close(np.asarray(got), np.moveaxis(want, 1, -1), reduction=64)


def test_nhwc_conv():
    x, w = random(1, 6, 6, 4), random(3, 3, 3, 4)
    got = converted(node(MS + "NhwcConv", {"X": x, "W": w}), {"X": x, "W": w})[0]
    first = {"X": np.moveaxis(x, -1, 1), "W": np.moveaxis(w, -1, 1)}
    want = converted(node("Conv", first), first)[0]
    assert_close(np.asarray(got), np.moveaxis(want, 1, -1), reduction=64)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_nhwc_max_pool(dtype):
    x = (random(1, 6, 6, 4) * 20).astype(np.int8).astype(dtype)
    assert_agrees(MS + "NhwcMaxPool", {"x": x}, kernel_shape=[2, 2], strides=[2, 2])
