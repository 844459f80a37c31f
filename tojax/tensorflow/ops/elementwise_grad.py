"""Gradients of elementwise functions as TensorFlow's graphs hold them: of the result y and dy."""

from __future__ import annotations

import jax.numpy as jnp

from tojax.tensorflow.core.schema import table


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
