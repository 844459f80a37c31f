"""Fake quantization, quantization there and back: ranges, rounding, gradients of the ends."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

raw, quantization = tf.raw_ops, tf.quantization
X = np.array([[-9, -1.45, -0.73, -0.01, 0], [0.02, 0.61, 1.26, 2.41, 7]], np.float32)  # no ties
RANGES = [(-1.5, 2.0), (0.0, 3.0), (-2.0, 0.0), (0.5, 3.0), (-3.0, -1.0), (0.0, 0.0)]


@pytest.mark.parametrize("bits, narrow", [(8, False), (8, True), (4, True), (2, False)])
def test_fake_quant(bits, narrow):
    how = {"num_bits": bits, "narrow_range": narrow}
    for low, high in RANGES:
        ends = np.float32(low), np.float32(high)
        vmap = low != high
        if bits == 8 or vmap:
            run = lambda *xs: quantization.fake_quant_with_min_max_vars(*xs, **how)
            agree(run, X, *ends, vmap=vmap)
        if vmap:
            run = lambda x, low=low, high=high: quantization.fake_quant_with_min_max_args(
                x, low, high, **how
            )
            agree(run, X)
    lows, highs = (np.array(x, np.float32) for x in zip(*RANGES[:5]))
    run = lambda *xs: quantization.fake_quant_with_min_max_vars_per_channel(*xs, **how)
    agree(run, X, lows, highs)


def test_operators_of_gradients():
    ends = np.float32(-1.5), np.float32(2)
    run = lambda g, *xs: quantization.fake_quant_with_min_max_vars_gradient(g, *xs)
    agree(run, X[::-1], X, *ends, grad=False)
    run = lambda g, x: quantization.fake_quant_with_min_max_args_gradient(g, x, -1.5, 2)
    agree(run, X[::-1], X, grad=False)
    ends = [np.array(x, np.float32) for x in zip(*RANGES[:5])]
    run = lambda g, *xs: quantization.fake_quant_with_min_max_vars_per_channel_gradient(g, *xs)
    agree(run, X[::-1], X, *ends, grad=False)


@pytest.mark.parametrize("given, narrow", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("signed", [False, True])
def test_there_and_back(given, narrow, signed):
    how = {"range_given": given, "signed_input": signed, "narrow_range": narrow}
    how["round_mode"] = "HALF_UP" if narrow else "HALF_TO_EVEN"
    agree(lambda x: quantization.quantize_and_dequantize(x, -1.5, 2.0, **how), X)
    agree(lambda x: quantization.quantize_and_dequantize_v2(x, -1.5, 2.0, **how), X)
    if not narrow:  # of each slice; TensorFlow's other kernels take no such range
        ends = [np.array(x, np.float32) for x in zip(*RANGES[:5])]
        how.pop("round_mode")
        run = lambda x: raw.QuantizeAndDequantizeV3(
            input=x, input_min=ends[0], input_max=ends[1], num_bits=8, axis=1, **how
        )
        agree(run, X)


def test_there_and_back_of_a_traced_width():
    run = lambda x, n: raw.QuantizeAndDequantizeV3(
        input=x, input_min=-1.5, input_max=2.0, num_bits=n, range_given=True
    )
    agree(run, X, np.int32(5))
    ends = np.float32(-1.5), np.float32(2)
    run = lambda *xs: quantization.quantize_and_dequantize_v2(*xs, range_given=True)
    agree(run, X, *ends)
    run = lambda g, *xs: raw.QuantizeAndDequantizeV4Grad(
        gradients=g, input=xs[0], input_min=xs[1], input_max=xs[2]
    )
    agree(run, X[::-1], X, *ends, grad=False)
