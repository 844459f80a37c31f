"""Batch normalization; the variance is that of the batch, not an estimate of the population's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.stablehlo.core.schema import lowers


def normalized(operand, scale, offset, mean, variance, epsilon, axis):
    along = lambda x: lax.broadcast_in_dim(x, operand.shape, [axis])
    epsilon = operand.dtype.type(epsilon)
    return (operand - along(mean)) * along(scale * lax.rsqrt(variance + epsilon)) + along(offset)


@lowers("stablehlo.batch_norm_inference")
def batch_norm_inference(operand, scale, offset, mean, variance, epsilon, feature_index):
    return normalized(operand, scale, offset, mean, variance, epsilon, feature_index)


@lowers("stablehlo.batch_norm_training")
def batch_norm_training(operand, scale, offset, epsilon, feature_index):
    axes = [i for i in range(operand.ndim) if i != feature_index]
    mean, variance = jnp.mean(operand, axes), jnp.var(operand, axes)
    out = normalized(operand, scale, offset, mean, variance, epsilon, feature_index)
    return out, mean, variance


@lowers("stablehlo.batch_norm_grad")
def batch_norm_grad(operand, scale, mean, variance, grad_output, epsilon, feature_index):
    """Differentiates the training mode, whose mean and variance these are."""
    train = lambda x, s, o: batch_norm_training(x, s, o, epsilon, feature_index)[0]
    return jax.vjp(train, operand, scale, jnp.zeros_like(scale))[1](grad_output)
