"""Quantization, real and pretended: torch's integers, and gradients where the value is in range."""

import jax
import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

RNG = np.random.default_rng(0)

quantized = torch.ops.quantized_decomposed
X = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32) * 9
SCALES = torch.tensor([0.1, 0.2, 0.3, 0.4])
ZEROS = torch.tensor([0, 1, 2, 3])
PER_TENSOR = (0.1, 3, 0, 100)
PER_CHANNEL = (SCALES, ZEROS, 0, -50, 50)


def learnt(x):
    """Scale and zero point are tensors."""
    return torch.fake_quantize_per_tensor_affine(x, torch.tensor(0.1), torch.tensor(3), 0, 100)


FAKE = {
    "per tensor": lambda x: torch.fake_quantize_per_tensor_affine(x, *PER_TENSOR),
    "per tensor, tensors": learnt,
    "per channel": lambda x: torch.fake_quantize_per_channel_affine(
        x, SCALES, ZEROS.int(), 0, -50, 50
    ),
}
REAL = {
    "per tensor": lambda x: quantized.quantize_per_tensor(x, *PER_TENSOR, torch.uint8),
    "per tensor, tensors": lambda x: quantized.quantize_per_tensor.tensor(
        x, SCALES[0], ZEROS[3], 0, 100, torch.uint8
    ),
    "per tensor, back": lambda x: quantized.dequantize_per_tensor(
        quantized.quantize_per_tensor(x, *PER_TENSOR, torch.uint8), *PER_TENSOR, torch.uint8
    ),
    "per channel": lambda x: quantized.quantize_per_channel(x, *PER_CHANNEL, torch.int8),
    "per channel, back": lambda x: quantized.dequantize_per_channel(
        quantized.quantize_per_channel(x, *PER_CHANNEL, torch.int8), *PER_CHANNEL, torch.int8
    ),
}


@pytest.mark.parametrize("name", FAKE)
def test_fake(name):
    x = torch.tensor(X, requires_grad=True)
    want = FAKE[name](x)
    (want**2).sum().backward()
    model = anyjax.from_torch(FAKE[name])
    assert_close(jax.jit(lambda x: model.apply({}, x))(X), want)
    assert_close(jax.grad(lambda x: (model.apply({}, x) ** 2).sum())(X), x.grad)


@pytest.mark.parametrize("name", REAL)
def test_decomposed(name):
    model = anyjax.from_torch(REAL[name])
    got, want = jax.jit(lambda x: model.apply({}, x))(X), REAL[name](torch.tensor(X))
    assert str(got.dtype) == str(want.dtype).removeprefix("torch.")
    assert_close(got, want)


def test_int_mm():
    a, b = (np.arange(17 * 8, dtype=np.int8).reshape(17, 8), np.ones((8, 16), np.int8))
    got = anyjax.from_torch(torch._int_mm)(a, b)
    assert_close(got, torch._int_mm(torch.tensor(a), torch.tensor(b)))


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated", "ignore:.*quantize.*")
@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
@pytest.mark.parametrize("scheme", ["default", "per channel"])
def test_dynamically_quantized_linear_layers(dtype, scheme):
    """Inputs are rounded to 127 steps of their own range, weights to those of theirs."""
    quantization = torch.ao.quantization
    layers = torch.nn.Sequential(torch.nn.Linear(700, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    setting = {torch.nn.Linear}
    if scheme == "per channel" and dtype is torch.qint8:
        setting = {torch.nn.Linear: quantization.per_channel_dynamic_qconfig}
    module = quantization.quantize_dynamic(layers, setting, dtype=dtype)
    model = anyjax.from_torch(module)
    for x in (RNG.standard_normal((3, 700)), RNG.random((2, 3, 700)), np.zeros((1, 700))):
        x = x.astype(np.float32)
        want = module(torch.from_numpy(x)).detach().numpy()
        assert_close(jax.jit(model.apply)(model.params, x), want, reduction=708)
