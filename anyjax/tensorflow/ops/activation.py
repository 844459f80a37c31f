"""Activations with TensorFlow's derivatives at their kinks, and gradient operators."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.tensorflow.core.schema import lowers, table

SCALE, SCALE_ALPHA = 1.0507009873554805, 1.7580993408473768


def zero(x):
    return np.zeros((), x.dtype)


def negative(x, scale):
    """Returns ``scale * (exp(x) - 1)`` below 0, elsewhere 0: no gradient overflows."""
    return scale * jnp.expm1(jnp.where(x < 0, x, zero(x)))


@lowers("Relu6")
def relu6(features):
    """The gradient at 0 and at 6 is 0."""
    return lax.clamp(zero(features), features, np.array(6, features.dtype))


@lowers("Elu")
def elu(features):
    return jnp.where(features < 0, negative(features, 1), features)


@lowers("Selu")
def selu(features):
    """The gradient at 0 is that of the right side."""
    return jnp.where(features < 0, negative(features, SCALE_ALPHA), SCALE * features)


@lowers("LeakyRelu")
def leaky_relu(features, alpha):
    """The gradient at 0 is that of the left side."""
    return jnp.where(features > 0, features, features * alpha)


@jax.custom_jvp
def softsign(x, /):
    return x / (1 + abs(x))


softsign.defjvps(lambda t, out, x: softsign_grad(t, x))


@lowers("SoftsignGrad")
def softsign_grad(gradients, features):
    """JAX's derivative is a difference of two quotients, which is inexact far from 0."""
    return gradients / jnp.square(1 + abs(features))


def masked(where):
    """Makes a lowering: the gradient where the input satisfies ``where``, else 0 (even if NaN)."""

    def grad(gradients, features, /):
        return jnp.where(where(features), gradients, zero(gradients))

    return grad


table.update(
    {
        "Relu": jax.nn.relu,
        "Softplus": jax.nn.softplus,
        "Softsign": softsign,
        "Softmax": lambda logits: jax.nn.softmax(logits),
        "LogSoftmax": lambda logits: jax.nn.log_softmax(logits),
        "ReluGrad": masked(lambda x: x > 0),
        "Relu6Grad": masked(lambda x: (x > 0) & (x < 6)),
        "SoftplusGrad": lambda gradients, features: gradients * lax.logistic(features),
    }
)


@lowers("EluGrad")
def elu_grad(gradients, outputs):
    return jnp.where(outputs < 0, gradients * (outputs + 1), gradients)


@lowers("SeluGrad")
def selu_grad(gradients, outputs):
    return gradients * jnp.where(outputs < 0, outputs + SCALE_ALPHA, SCALE)


@lowers("LeakyReluGrad")
def leaky_relu_grad(gradients, features, alpha):
    return jnp.where(features > 0, gradients, gradients * alpha)


# Gradients of elementwise functions, computed from the result y and dy.


def _times(derivative):
    return lambda y, dy: dy * derivative(y)


def _conjugated(derivative):
    return lambda y, dy: dy * derivative(jnp.conj(y))


_reciprocal = _conjugated(lambda y: -y * y)

table.update(
    {
        "InvGrad": _reciprocal,
        "ReciprocalGrad": _reciprocal,
        "RsqrtGrad": _conjugated(lambda y: -0.5 * (y * y * y)),
        "SigmoidGrad": _times(lambda y: y * (1 - y)),
        "SqrtGrad": lambda y, dy: 0.5 * dy / jnp.conj(y),
        "TanhGrad": _times(lambda y: 1 - y * y),
    }
)
