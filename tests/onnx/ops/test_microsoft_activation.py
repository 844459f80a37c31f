"""Fused activations and products of onnxruntime; those that its CPU lacks, against numpy."""

import jax
import numpy as np
import pytest
from scipy.special import erf, softmax

import anyjax
from anyjax.errors import Unsupported
from tests.onnx.with_onnxruntime import assert_agrees, converted, node
from tests.tolerance import assert_close

RNG = np.random.default_rng(0)
MS = "com.microsoft::"


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


X, BIAS = random(2, 5, 8), random(8)


def numpys(op, inputs, want, **how):
    """Compares with numpy what onnxruntime has for other devices alone."""
    assert_close(np.asarray(converted(node(MS + op, inputs, **how), inputs)[0]), want, reduction=16)


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "QuickGelu"])
def test_gelu(op):
    assert_agrees(MS + op, {"X": X})


@pytest.mark.parametrize("op", ["FastGelu", "BiasGelu"])
def test_gelu_of_a_sum(op):
    assert_agrees(MS + op, {"X": X, "bias": BIAS})


def test_what_the_cpu_lacks():
    numpys("BiasAdd", {"X": X, "bias": BIAS, "skip": X}, X + BIAS + X)
    numpys("BiasDropout", {"data": X, "bias": BIAS, "residual": X}, X + BIAS + X)
    value, gate = np.split(X + BIAS, 2, -1)
    gelu = gate * (1 + erf(gate / np.sqrt(np.float32(2)))) / 2
    numpys("BiasSplitGelu", {"X": X, "bias": BIAS}, value * gelu)
    bias = random(2, 1, 8)
    how = dict(axis=2, is_inner_broadcast=1)
    numpys("BiasSoftmax", {"data": X, "bias": bias}, softmax(X + bias, 2), **how)


def test_dropout_in_training_is_refused():
    inputs = {"d": X, "b": BIAS, "r": None, "ratio": np.float32(0.5), "t": np.array(True)}
    with pytest.raises(Unsupported, match="training_mode"):
        converted(node(MS + "BiasDropout", inputs, constants=("t",)), inputs)


@pytest.mark.parametrize("how", ["transA", "transB", "transBatchA", "transBatchB"])
def test_fused_matmul(how):
    A, B = random(2, 3, 4, 5), random(2, 3, 5, 6)
    turn = {"transA": lambda x: x.swapaxes(2, 3), "transB": lambda x: x.swapaxes(2, 3)}
    turned = turn.get(how, lambda x: np.moveaxis(x, -2, 0))
    inputs = {"A": turned(A), "B": B} if how.endswith("A") else {"A": A, "B": turned(B)}
    inputs = {k: np.ascontiguousarray(v) for k, v in inputs.items()}
    assert_agrees(MS + "FusedMatMul", inputs, alpha=0.5, **{how: 1})


def test_transpose_matmul():
    assert_agrees(MS + "TransposeMatMul", {"A": random(4, 3), "B": random(4, 6)}, transA=1)


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "Tanh", "HardSigmoid", "Softplus"])
def test_fused_gemm(activation):
    alphas = {"LeakyRelu": dict(activation_alpha=0.2)}
    alphas["HardSigmoid"] = dict(activation_alpha=0.2, activation_beta=0.4)
    inputs = {"A": random(4, 3), "B": random(3, 6), "C": random(6)}
    how = dict(activation=activation, alpha=0.5, **alphas.get(activation, {}))
    assert_agrees(MS + "FusedGemm", inputs, **how)


def test_matmul_with_an_activation():
    A, B = random(4, 3), random(3, 6)
    numpys("FusedMatMulActivation", {"A": A, "B": B}, np.maximum(A @ B, 0), activation="Relu")
    numpys("FusedMatMulActivation", {"A": A, "B": B}, softmax(A @ B, -1), activation="Softmax")


def test_unknown_activation_is_refused():
    inputs = {"A": random(4, 3), "B": random(3, 6), "C": random(6)}
    with pytest.raises(Unsupported, match="activation Erf"):
        converted(node(MS + "FusedGemm", inputs, activation="Erf"), inputs)


def test_gradients():
    model = anyjax.from_onnx(node(MS + "BiasGelu", {"A": X, "B": BIAS}))
    gradient = jax.grad(lambda b: model.apply(model.params, X, b).sum())(BIAS)
    want = jax.grad(lambda b: jax.nn.gelu(X + b, approximate=False).sum())(BIAS)
    assert_close(gradient, want, reduction=16)
