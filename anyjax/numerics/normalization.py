"""Standardization: mean 0 and variance 1."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


def moments(x, axes):
    """Returns mean and variance with their axes as 1."""
    mean = jnp.mean(x, axes, keepdims=True)
    return mean, jnp.mean(jnp.square(x - mean), axes, keepdims=True)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def standardized(x, epsilon, axes):
    """Returns x with mean 0 and variance 1, its mean and its variance."""
    mean, variance = moments(x, axes)
    return (x - mean) * lax.rsqrt(variance + epsilon), mean, variance


@standardized.defjvp
def _standardized_jvp(epsilon, axes, primals, tangents):
    """Takes two sums in either direction; differentiating the steps would take four."""
    (x,), (dx,) = primals, tangents
    out, mean, variance = standardized(x, epsilon, axes)
    d_mean = jnp.mean(dx, axes, keepdims=True)
    along = jnp.mean(out * dx, axes, keepdims=True)
    scale = lax.rsqrt(variance + epsilon)
    d_variance = 2 * along / scale
    return (out, mean, variance), (scale * (dx - d_mean - out * along), d_mean, d_variance)
