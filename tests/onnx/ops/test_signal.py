"""Fourier transforms against numpy's."""

import numpy as np
import pytest

import anyjax
from tests.onnx.with_onnxruntime import assert_agrees, node
from tests.tolerance import assert_close

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def pairs(x):
    return np.stack([x.real, x.imag], -1).astype(np.float32)


@pytest.mark.parametrize("size", [None, 6, 7, 12])
@pytest.mark.parametrize("axis", [1, 2])
def test_dft(size, axis):
    real, both = normal(2, 9, 8, 1), normal(2, 9, 8, 2)
    signal = both[..., 0] + 1j * both[..., 1]
    cases = [
        (real, {}, pairs(np.fft.fft(real[..., 0], size, axis))),
        (real, {"onesided": 1}, pairs(np.fft.rfft(real[..., 0], size, axis))),
        (both, {}, pairs(np.fft.fft(signal, size, axis))),
        (both, {"inverse": 1}, pairs(np.fft.ifft(signal, size, axis))),
        (both, {"inverse": 1, "onesided": 1}, np.fft.irfft(signal, size, axis)[..., None]),
    ]
    for x, how, want in cases:
        inputs = {"x": x, "size": None if size is None else np.array(size), "axis": np.array(axis)}
        constants = ("axis",) if size is None else ("axis", "size")
        model = anyjax.from_onnx(node("DFT", inputs, constants=constants, **how))
        assert_close(model(x), want.astype(np.float32), reduction=64)
        del inputs["axis"]
        how |= {"axis": axis, "opsets": {"": 17}}
        model = anyjax.from_onnx(node("DFT", inputs, constants=constants[1:], **how))
        assert_close(model(x), want.astype(np.float32), reduction=64)


@pytest.mark.parametrize("window", [True, False])
def test_stft(window):
    inputs = {
        "signal": normal(2, 50, 1), "step": np.array(7),
        "window": normal(16) if window else None, "length": np.array(16),
    }  # fmt: skip
    assert_agrees("STFT", inputs, 1, 256, constants=("step", "length"))


def test_mel_weights():
    number = lambda x: np.array(x, np.float32)
    inputs = {
        "bins": np.array(8), "length": np.array(64), "rate": np.array(8192),
        "low": number(0), "high": number(4096),
    }  # fmt: skip
    assert_agrees("MelWeightMatrix", inputs, constants=tuple(inputs))
