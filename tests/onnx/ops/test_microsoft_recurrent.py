"""The quantized LSTM of onnxruntime."""

import numpy as np
import pytest

from tests.onnx.agree import normal as random
from tests.onnx.with_onnxruntime import assert_agrees

RNG = np.random.default_rng(4)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("columns", [False, True])
def test_dynamic_quantize_lstm(dtype, direction, columns):
    ways, size, gates = 2 if direction == "bidirectional" else 1, 8, 32
    low, high = (
        (0, 256) if dtype is np.uint8 else (-64, 64)
    )  # 7 bits: onnxruntime saturates without VNNI
    integers = lambda *shape: RNG.integers(low, high, shape).astype(dtype)
    scales = (ways, gates) if columns else (ways,)
    scale = lambda: RNG.uniform(0.002, 0.004, scales).astype(np.float32)
    zero = np.full(scales, 0 if columns else 3, dtype)  # all that onnxruntime has
    inputs = {
        "X": random(5, 2, 6), "W": integers(ways, 6, gates), "R": integers(ways, size, gates),
        "B": random(ways, 2 * gates), "lengths": None, "h": random(ways, 2, size),
        "c": random(ways, 2, size), "P": None, "W_scale": scale(), "W_zero": zero,
        "R_scale": scale(), "R_zero": zero,
    }  # fmt: skip
    how = dict(direction=direction, hidden_size=size, reduction=64)
    constants = ("W", "R", "W_scale", "W_zero", "R_scale", "R_zero")
    op = "com.microsoft::DynamicQuantizeLSTM"
    assert_agrees(op, inputs, 3, constants=constants, **how)
