"""Activations of onnxruntime, fused with the sum or the product before them."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from anyjax.errors import Unsupported
from anyjax.onnx.core.schema import lowers, update
from anyjax.onnx.ops.linalg import gemm, matmul


def plus(x, bias):
    return x if bias is None else x + bias


def fast_gelu(x):
    return jax.nn.gelu(x, approximate=True)


def bias_split_gelu(X, bias):
    """Returns the first half of the channels times the GELU of the second."""
    value, gate = jnp.split(X + bias, 2, -1)
    return value * jax.nn.gelu(gate, approximate=False)


def bias_dropout(data, bias, residual, ratio, training_mode, seed):
    """Returns the sum; training draws what it drops."""
    if training_mode is not None:
        raise Unsupported(
            "BiasDropout with training_mode",
            why="a graph that onnxruntime optimized for training draws random numbers",
            do="export the model in inference mode",
        )
    total = plus(data + bias, residual)
    return total, lambda: jnp.ones(total.shape, bool)


update(
    {
        "com.microsoft::Gelu": lambda X: jax.nn.gelu(X, approximate=False),
        "com.microsoft::FastGelu": lambda X, bias: fast_gelu(plus(X, bias)),
        "com.microsoft::BiasGelu": lambda A, B: jax.nn.gelu(A + B, approximate=False),
        "com.microsoft::BiasAdd": lambda X, bias, skip: X + bias + skip,
        "com.microsoft::QuickGelu": lambda X, alpha: X * jax.nn.sigmoid(alpha * X),
        "com.microsoft::BiasSplitGelu": bias_split_gelu,
        "com.microsoft::BiasDropout": bias_dropout,
        "com.microsoft::GemmFastGelu": lambda X, W, bias: fast_gelu(plus(matmul(X, W), bias)),
        "com.microsoft::TransposeMatMul": lambda A, B, alpha, transA, transB: fused_matmul(
            A, B, alpha, transA, transB, 0, 0
        ),
    }
)


@lowers("com.microsoft::BiasSoftmax")
def bias_softmax(data, bias, axis, is_inner_broadcast):
    """The softmax is over all axes from ``axis`` on."""
    return jax.nn.softmax(data + bias, tuple(range(axis % data.ndim, data.ndim)))


def activated(x, activation, alpha=None, beta=None):
    """Returns x after the activation that a fused operator names, if it names one.

    Raises:
      Unsupported: it is one that onnxruntime does not fuse.
    """
    functions = {
        "": lambda: x,
        "Relu": lambda: jax.nn.relu(x),
        "Sigmoid": lambda: jax.nn.sigmoid(x),
        "Tanh": lambda: jnp.tanh(x),
        "LeakyRelu": lambda: jnp.where(x < 0, (0.01 if alpha is None else alpha) * x, x),
        "Clip": lambda: jnp.clip(x, alpha, beta),
        "HardSigmoid": lambda: jnp.clip(alpha * x + beta, 0, 1),
        "HardSwish": lambda: x * jnp.clip(x / 6 + 0.5, 0, 1),
        "Softplus": lambda: jax.nn.softplus(x),
        "Softsign": lambda: jax.nn.soft_sign(x),
    }
    if (activation or "") not in functions:
        raise Unsupported(
            f"the activation {activation} of a fused operator",
            why="onnxruntime fuses others",
            do="convert the model before onnxruntime optimizes it",
        )
    return functions[activation or ""]()


def turned(x, batch, last):
    """Moves the first axis before the last one, then swaps the last two."""
    x = jnp.moveaxis(x, 0, -2) if batch and x.ndim > 2 else x
    return jnp.swapaxes(x, -1, -2) if last and x.ndim > 1 else x


@lowers("com.microsoft::FusedMatMul")
def fused_matmul(A, B, alpha, transA, transB, transBatchA, transBatchB):
    out = matmul(turned(A, transBatchA, transA), turned(B, transBatchB, transB))
    return out if alpha == 1 else (out * alpha).astype(out.dtype)


@lowers("com.microsoft::FusedMatMulActivation")
def fused_matmul_activation(
    A, B, activation, activation_alpha, activation_axis, activation_beta, activation_gamma, /, *how
):
    out = fused_matmul(A, B, *how)
    if activation == "Softmax":
        return jax.nn.softmax(out, -1 if activation_axis is None else activation_axis)
    return activated(out, activation, activation_alpha, activation_beta)


@lowers("com.microsoft::FusedGemm")
def fused_gemm(A, B, C, activation, activation_alpha, activation_beta, activation_gamma, /, *how):
    return activated(gemm(A, B, C, *how), activation, activation_alpha, activation_beta)
