"""Quotients as IEEE 754 rounds them, which decides where a program rounds them to integers."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def divide(x, y) -> jax.Array:
    """``lax.div`` that XLA does not turn into a product with ``1 / y``.

    XLA does so wherever it sees that many divisors are one number, and then 41 / 41.0 is below 1
    and ``floor(i / 41.0)`` another row. Behind a barrier it does not; both compile to one loop.

    Args:
      x: an array of floats.
      y: an array of the same dtype, of the same shape or ``()``.

    Example:
      >>> rows = jax.jit(lambda i: jnp.floor(divide(i, np.float32(41))))
      >>> int(rows(np.arange(0, 41 * 999, 41, dtype=np.float32))[-1])
      998
    """
    if np.ndim(y) or _reciprocal_is_exact(y):
        return lax.div(x, y)
    y = jnp.broadcast_to(y, np.shape(x))
    # The choice between two equals gives y the axes that vmap gives x; XLA drops it.
    return lax.div(x, lax.optimization_barrier(lax.select(lax.eq(x, x), y, y)))


def _reciprocal_is_exact(y) -> bool:
    """Whether this is known to be a power of two."""
    if isinstance(y, jax.core.Tracer) or jnp.iscomplexobj(y):
        return False
    return abs(math.frexp(y)[0]) == 0.5
