"""Convolutions with every way of padding."""

import itertools

import jax
import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import anyjax
from anyjax.errors import Unsupported
from tests.onnx.with_onnxruntime import assert_agrees, node
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=6)

RNG = np.random.default_rng(0)
WAYS = [*itertools.product(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"], [1, 2], [1, 2])]


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("auto_pad,stride,group", WAYS)
def test_conv(auto_pad, stride, group):
    inputs = {"X": normal(2, 4, 9, 10), "W": normal(6, 4 // group, 3, 2), "B": normal(6)}
    how = {"auto_pad": auto_pad, "strides": [stride] * 2, "group": group}
    assert_agrees("Conv", inputs, reduction=64, **how)


@pytest.mark.parametrize("rank", [1, 3])
def test_conv_of_other_ranks(rank):
    inputs = {"X": normal(2, 3, *[6] * rank), "W": normal(2, 3, *[2] * rank), "B": None}
    how = {"pads": [1] * rank + [0] * rank, "dilations": [2] * rank}
    assert_agrees("Conv", inputs, reduction=64, **how)


@pytest.mark.parametrize("auto_pad,stride,group", WAYS)
def test_conv_transpose(auto_pad, stride, group):
    inputs = {"X": normal(2, 4, 5, 6), "W": normal(4, 3, 3, 2), "B": normal(3 * group)}
    how = {"auto_pad": auto_pad, "strides": [stride] * 2, "group": group}
    assert_agrees("ConvTranspose", inputs, reduction=64, **how)
    padding = [stride - 1, 0]
    assert_agrees("ConvTranspose", inputs, reduction=64, output_padding=padding, **how)
    shape = [5 * stride + 1, 6 * stride]
    assert_agrees("ConvTranspose", inputs, reduction=64, output_shape=shape, **how)


def test_a_transposed_conv_as_long_as_the_strides_say():
    """Windows that are shorter than the strides leave lines of the bias, which are cut."""
    how = {"auto_pad": "SAME_UPPER", "strides": [3]}
    inputs = {"X": normal(1, 2, 5), "W": normal(2, 2, 2), "B": normal(2)}
    model = anyjax.from_onnx(node("ConvTranspose", inputs, **how))
    out = model(**inputs)
    assert out.shape == (1, 2, 15)
    assert (out[:, :, 14] == inputs["B"]).all()


@pytest.mark.parametrize("groups", [1, 2])
def test_deform_conv(groups):
    inputs = {
        "X": normal(2, 4, 7, 8),
        "W": normal(6, 4 // groups, 3, 3),
        "offset": normal(2, groups * 18, 4, 5),
        "B": normal(6),
        "mask": normal(2, groups * 9, 4, 5),
    }
    how = {"group": groups, "offset_group": groups, "strides": [2, 2], "pads": [1, 1, 1, 2]}
    assert_agrees("DeformConv", inputs, reduction=512, **how)


def test_deform_conv_of_volumes_is_refused():
    inputs = {
        "X": normal(1, 1, 3, 3, 3),
        "W": normal(1, 1, 1, 1, 1),
        "offset": normal(1, 3, 3, 3, 3),
    }
    model = anyjax.from_onnx(node("DeformConv", inputs))
    with pytest.raises(Unsupported, match="DeformConv over 3 dimensions"):
        model(**inputs)


def test_col2im():
    inputs = {"input": normal(2, 18, 25), "image": np.array([6, 8]), "block": np.array([2, 3])}
    how = {"strides": [1, 2], "pads": [0, 2, 0, 1]}
    model = node("Col2Im", inputs, constants=("image", "block"), **how)
    (want,) = ReferenceEvaluator(model).run(None, {"input": inputs["input"]})
    assert_close(anyjax.from_onnx(model)(inputs["input"]), want, reduction=16)


def test_a_causal_conv_in_two_calls_is_that_of_one():
    x, weight = normal(2, 3, 7), normal(3, 1, 4)
    how = {"opsets": {"": 27}, "activation": "silu"}
    inputs = {"input": x, "weight": weight}
    whole, state = anyjax.from_onnx(node("CausalConvWithState", inputs, 2, **how))(
        **inputs
    ).values()
    first = {"input": x[:, :, :3], "weight": weight}
    start, past = anyjax.from_onnx(node("CausalConvWithState", first, 2, **how))(**first).values()
    rest = {"input": x[:, :, 3:], "weight": weight, "bias": None, "past": np.asarray(past)}
    model = anyjax.from_onnx(node("CausalConvWithState", rest, 2, **how))
    end, last = model(rest["input"], weight, rest["past"]).values()
    assert_close(jax.numpy.concatenate([start, end], 2), whole, reduction=4)
    assert_close(last, state)
