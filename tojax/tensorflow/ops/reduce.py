"""Sums and the like over axes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tojax.tensorflow.core.schema import Static, lowers


def axes(indices) -> tuple[int, ...]:
    return tuple(int(i) for i in np.ravel(indices))


@lowers("Mean")
def mean(input, axis: Static, /, keep_dims):
    return jnp.mean(input, axes(axis), keepdims=keep_dims)


@lowers("Sum")
def sum_(input, axis: Static, /, keep_dims):
    return jnp.sum(input, axes(axis), keepdims=keep_dims)
