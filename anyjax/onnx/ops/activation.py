"""Activations, and what normalizes along an axis: Softmax and its kin."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp

from anyjax.onnx.core.schema import lowers, update

update(
    {
        "Celu": lambda X, alpha: jax.nn.celu(X, alpha),
        "Elu": lambda X, alpha: jax.nn.elu(X, alpha),
        "Gelu": lambda X, approximate: jax.nn.gelu(X, approximate=approximate == "tanh"),
        "HardSigmoid": lambda X, alpha, beta: jnp.clip(alpha * X + beta, 0, 1),
        "HardSwish": lambda X: X * jnp.clip(X / 6 + 0.5, 0, 1),
        "LeakyRelu": lambda X, alpha: jnp.where(X < 0, alpha * X, X),
        "Mish": lambda X: X * jnp.tanh(jax.nn.softplus(X)),
        "Relu": jax.nn.relu,
        "Selu": lambda X, alpha, gamma: gamma * jax.nn.elu(X, alpha),
        "Sigmoid": jax.nn.sigmoid,
        "Softplus": jax.nn.softplus,
        "Softsign": jax.nn.soft_sign,
        "Swish": lambda X, alpha: X * jax.nn.sigmoid(alpha * X),
        "ThresholdedRelu": lambda X, alpha: jnp.where(alpha < X, X, 0),
    }
)


@lowers("PRelu")
def prelu(X, slope):
    """Slopes of models of opset 6 are one for each channel."""
    if slope.ndim == 1 and X.ndim > 2 and slope.size == X.shape[1] != X.shape[-1]:
        slope = slope.reshape(-1, *[1] * (X.ndim - 2))
    return jnp.where(X < 0, slope * X, X)


@lowers("Shrink")
def shrink(input, bias, lambd):
    shifted = jnp.where(input < -lambd, input + bias, input - bias)
    return jnp.where(jnp.abs(input) > lambd, shifted, 0).astype(input.dtype)


def hardmax(x, axis):
    """Returns 1 for the first of the largest elements, 0 for all others."""
    places = jnp.argmax(x, axis)
    return jax.nn.one_hot(places, x.shape[axis], dtype=x.dtype, axis=axis)


def flattened(function, input, axis):
    """Normalizes over all axes from ``axis`` on together, as versions before 13 do."""
    axis = axis + input.ndim if axis < 0 else axis
    rows = input.reshape(math.prod(input.shape[:axis]), -1)
    return function(rows, 1).reshape(input.shape)


for _name, _function in (
    ("Softmax", jax.nn.softmax),
    ("LogSoftmax", jax.nn.log_softmax),
    ("Hardmax", hardmax),
):
    _rows = {
        _name: lambda input, axis, function=_function, /: function(input, axis),
        f"{_name}@11": partial(flattened, _function),
    }
    update(_rows)
