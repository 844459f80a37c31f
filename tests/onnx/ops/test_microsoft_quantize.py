"""Quantized operators of onnxruntime: the very integers."""

import numpy as np
import pytest

from anyjax.errors import Unsupported
from tests.onnx.agree import normal as random
from tests.onnx.with_onnxruntime import assert_agrees, converted, node
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=3)

MS = "com.microsoft::"
RNG = np.random.default_rng(3)
TYPES = pytest.mark.parametrize("dtype", [np.uint8, np.int8])


def integers(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def weights_of(*shape):
    """int8 of 7 bits: sums of larger ones saturate in onnxruntime on processors without VNNI."""
    return RNG.integers(-64, 64, shape).astype(np.int8)


def scale(x, step, zero, name):
    """Returns the inputs of a quantized array: itself (not for a result), scale and zero point."""
    inputs = {name: x} if isinstance(x, np.ndarray) else {}
    dtype = x.dtype if inputs else x
    return inputs | {f"{name}_scale": np.float32(step), f"{name}_zero": np.array(zero, dtype)}


def agree(op, inputs, **how):
    inputs = {k: np.asarray(v) for k, v in inputs.items()}
    constants = tuple(name for name in inputs if "_" in name)
    assert_agrees(MS + op, inputs, constants=constants, **how)


@TYPES
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_binary(op, dtype):
    x, y = integers(dtype, 3, 5, 8), integers(dtype, 5, 8)
    inputs = scale(x, 0.02, 7, "x") | scale(y, 0.03, 9, "y") | scale(dtype, 0.04, 3, "z")
    agree(op, inputs)


@TYPES
@pytest.mark.parametrize(
    "op, how",
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", dict(alpha=0.2)),
        ("QLinearSoftmax", dict(axis=1, opset=13)),
        ("QLinearSoftmax", dict(axis=1, opset=11)),
        ("QLinearAveragePool", dict(kernel_shape=[2, 2], pads=[1, 1, 0, 0], channels_last=0)),
        ("QLinearAveragePool", dict(kernel_shape=[2, 2], strides=[2, 2], channels_last=1)),
        ("QLinearGlobalAveragePool", dict(channels_last=0)),
        ("QLinearGlobalAveragePool", dict(channels_last=1)),
    ],
)
def test_unary(op, how, dtype):
    x = integers(dtype, 2, 5, 8, 4)
    steps = {"QLinearSigmoid": 1 / 256, "QLinearSoftmax": 1 / 256}
    agree(op, scale(x, 0.05, 7, "x") | scale(dtype, steps.get(op, 0.0437219), 3, "y"), **how)


@TYPES
def test_concat_and_where(dtype):
    x, y = integers(dtype, 2, 3, 4), integers(dtype, 2, 3, 4)
    pair = scale(x, 0.02, 3, "x") | scale(y, 0.04, 5, "y")
    out = scale(dtype, 0.05, 7, "z")
    agree("QLinearConcat", out | pair, axis=1)
    agree("QLinearWhere", {"condition": x > y} | pair | out)


@TYPES
def test_reduce_mean(dtype):
    """onnxruntime's CPU lacks it."""
    x = integers(dtype, 2, 3, 4)
    inputs = scale(x, 0.02, 3, "x") | scale(dtype, 0.013, 7, "y")
    inputs = {k: np.asarray(v) for k, v in inputs.items()}
    model = node(MS + "QLinearReduceMean", inputs, axes=[1, 2], keepdims=1)
    mean = (x.astype(np.float32) - 3).mean((1, 2), keepdims=True) * np.float32(0.02)
    limits = np.iinfo(dtype)
    want = np.clip(np.round(mean / np.float32(0.013)) + 7, limits.min, limits.max)
    assert_close(np.asarray(converted(model, inputs)[0]), want.astype(dtype))


@TYPES
def test_quantize_and_dequantize(dtype):
    for x, op in ((random(3, 4), "QuantizeLinear"), (integers(dtype, 3, 4), "DequantizeLinear")):
        agree(op, {"x": x, "s": np.float32(0.02), "z": np.array(3, dtype)})
        agree(op, {"x": x, "s": abs(random(4)), "z": integers(dtype, 4)}, axis=1)


@TYPES
@pytest.mark.parametrize("columns", [False, True])
def test_products(dtype, columns):
    a, b = integers(dtype, 2, 3, 16), weights_of(16, 24)
    b_scale = abs(random(24)) if columns else np.float32(0.03)
    b_zero = weights_of(24) if columns else np.int8(2)
    scales = {"a_scale": np.float32(0.02), "b_scale": b_scale}
    zeros = {"a_zero": np.array(7, dtype), "b_zero": b_zero}
    agree("MatMulIntegerToFloat", {"A": a, "B_": b} | scales | zeros | {"bias": random(24)})
    inputs = {"A": random(2, 3, 16), "B_": b, "b_scale": b_scale, "b_zero": b_zero}
    agree("DynamicQuantizeMatMul", inputs | {"bias": random(24)}, reduction=64)


@TYPES
@pytest.mark.parametrize("turned", [0, 1])
def test_gemm(dtype, turned):
    a, b = integers(dtype, 3, 16), weights_of(*((24, 16) if turned else (16, 24)))
    bias = RNG.integers(-5000, 5000, 24).astype(np.int32)
    inputs = scale(a, 0.02, 7, "a_") | scale(b, 0.03, 2, "b_") | {"c_": bias}
    inputs = {"a": inputs.pop("a_")} | inputs
    agree("QGemm", inputs, transB=turned)
    agree("QGemm", inputs | scale(dtype, 1.0, 5, "y"), transB=turned)


@TYPES
def test_conv_with_channels_last(dtype):
    w = weights_of(5, 4, 3, 3)
    inputs = scale(integers(dtype, 1, 6, 6, 4), 0.02, 3, "x") | scale(w, 0.01, 0, "w_")
    inputs |= scale(dtype, 0.2, 4, "y") | {"b_": RNG.integers(-500, 500, 5).astype(np.int32)}
    agree("QLinearConv", inputs, channels_last=1, kernel_shape=[3, 3])


@pytest.mark.parametrize("weights", [np.uint8, np.int8])
def test_attention(weights):
    inputs = {
        "x": integers(np.uint8, 2, 5, 8),
        "w_": RNG.integers(0, 64, (8, 24)).astype(weights),
        "bias": random(24), "x_scale": np.float32(0.01), "w_scale": np.float32(0.01),
        "mask": np.array([3, 5], np.int32), "x_zero": np.uint8(7), "w_zero": weights(3),
    }  # fmt: skip
    agree("QAttention", inputs, num_heads=2, reduction=64)
    inputs = {k: np.asarray(v) for k, v in inputs.items()}
    with pytest.raises(Unsupported, match="QAttention"):
        converted(node(MS + "QAttention", inputs, num_heads=2, do_rotary=1), inputs)
