"""Quantization by tensor, axis and block, and products of integers."""

import itertools

import jax
import numpy as np
import pytest

import anyjax
from anyjax.onnx.ops.quantize import conv_of_integers
from tests.onnx.with_onnxruntime import assert_agrees, node

pytestmark = pytest.mark.sample(every=4)

RNG = np.random.default_rng(0)


def whole(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def steps(*shape):
    return (0.01 + 0.1 * RNG.random(shape)).astype(np.float32)


HALVES = (RNG.integers(-200, 200, (4, 6)) / 2).astype(np.float32)
KINDS = [np.uint8, np.int8]


@pytest.mark.parametrize("dtype,version", [*itertools.product(KINDS, [10, 13, 19, 21])])
def test_a_tensor(dtype, version):
    scale, zero = np.array(0.5, np.float32), np.array(3, dtype)
    opsets = {"": version}
    assert_agrees("QuantizeLinear", {"x": HALVES, "s": scale, "z": zero}, opsets=opsets)
    inputs = {"x": whole(dtype, 4, 6), "s": scale, "z": zero}
    assert_agrees("DequantizeLinear", inputs, opsets=opsets)


@pytest.mark.parametrize("dtype", KINDS)
def test_axes_and_blocks(dtype):
    for axis, shape in ((0, (4,)), (-1, (6,))):
        scale, zero = steps(*shape), whole(dtype, *shape)
        assert_agrees("QuantizeLinear", {"x": HALVES, "s": scale, "z": zero}, axis=axis)
        inputs = {"x": whole(dtype, 4, 6), "s": scale, "z": zero}
        assert_agrees("DequantizeLinear", inputs, axis=axis)
    scale, zero = steps(4, 2), whole(dtype, 4, 2)
    how = {"axis": 1, "block_size": 3}
    assert_agrees("QuantizeLinear", {"x": HALVES, "s": scale, "z": zero}, **how)
    assert_agrees("DequantizeLinear", {"x": whole(dtype, 4, 6), "s": scale, "z": zero}, **how)


def test_a_quotient_is_rounded_once():
    """A constant scale is not multiplied by as its inverse, which would move ties."""
    scale = np.array(41, np.float32)
    x = (np.arange(0, 200) * np.float32(20.5)).astype(np.float32)
    assert_agrees("QuantizeLinear", {"x": x, "s": scale}, constants=("s",))


def test_dynamic():
    for x in (HALVES, abs(HALVES), -abs(HALVES)):
        assert_agrees("DynamicQuantizeLinear", {"x": x}, 3)


@pytest.mark.parametrize("dtype", KINDS)
def test_products(dtype):
    inputs = {"A": whole(np.uint8, 2, 4, 6), "B": whole(dtype, 6, 5)}
    assert_agrees("MatMulInteger", {**inputs, "a": np.array(3, np.uint8)})
    assert_agrees("MatMulInteger", {**inputs, "a": None, "b": whole(dtype, 5)})
    number = lambda x: np.array(x, np.float32)
    inputs = {
        "a": whole(np.uint8, 4, 6), "scale_a": number(0.02), "az": np.array(3, np.uint8),
        "b": whole(dtype, 6, 5), "scale_b": number(0.03), "bz": np.array(5, dtype),
        "ys": number(0.7), "yz": np.array(100, np.uint8),
    }  # fmt: skip
    assert_agrees("QLinearMatMul", inputs)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions(groups):
    number = lambda x: np.array(x, np.float32)
    inputs = {
        "x": whole(np.uint8, 1, 4, 8, 8), "xs": number(0.02), "xz": np.array(120, np.uint8),
        "w": whole(np.int8, 6, 4 // groups, 3, 3), "ws": steps(6), "wz": np.zeros(6, np.int8),
        "ys": number(0.7), "yz": np.array(100, np.uint8), "B": RNG.integers(-999, 999, 6, np.int32),
    }  # fmt: skip
    assert_agrees("QLinearConv", inputs, group=groups, pads=[1, 1, 1, 1])
    inputs = {"x": inputs["x"], "w": inputs["w"], "xz": inputs["xz"]}
    assert_agrees("ConvInteger", inputs, group=groups, pads=[1, 1, 1, 1])


@pytest.mark.parametrize("channels", [4000, 5000])
def test_sums_of_integers_are_exact(channels):
    x, w = (np.full(shape, 255, np.int32) for shape in ((1, channels, 1), (1, channels, 1)))
    out = jax.jit(lambda x, w: conv_of_integers(x, w, "NOTSET", None, 1, None, None, None))(x, w)
    assert out.item() == channels * 255**2


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4", "uint4"])
def test_narrow_types(name):
    dtype = jax.numpy.dtype(name)
    inputs = {"x": HALVES, "s": np.array(9, np.float32), "z": np.zeros((), dtype)}
    opsets = {"": 23}
    model = anyjax.from_onnx(node("QuantizeLinear", inputs, constants=("s", "z"), opsets=opsets))
    out = model(HALVES)
    assert out.dtype == dtype
    want = np.clip(np.round(HALVES / 9), -8, 7) if name == "int4" else HALVES / 9
    want = np.clip(np.round(want), 0, 15) if name == "uint4" else want
    want = np.clip(want, -6, 6) if name == "float4_e2m1fn" else want
    assert (np.asarray(out) == want.astype(dtype)).all()
