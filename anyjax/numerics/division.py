"""Quotients as IEEE 754 rounds them, which decides where a program rounds them to integers, and
powers of integers and of the complex 0.
"""

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


def integer_power(x, y) -> jax.Array:
    """Returns ``x ** y`` of integers, which wraps as in C; negative powers are 0, but for 1 and -1.

    ``jnp.power`` reads six bits of the exponents: ``2 ** 64`` of int32 is 1 there, and 0 in C.

    Example:
      >>> integer_power(jnp.array([3, 2, -1, 2]), jnp.array([4, 64, -3, -1])).tolist()
      [81, 0, -1, 0]
    """
    x, y = jnp.broadcast_arrays(x, y)
    ones = lax.full_like(y, 1)
    odd = lambda y: lax.bitwise_and(y, ones) == 1

    def step(carry):
        out, x, y = carry
        return lax.select(odd(y), out * x, out), x * x, lax.shift_right_logical(y, ones)

    start = lax.full_like(x, 1), x, lax.max(y, lax.full_like(y, 0))
    power = lax.while_loop(lambda carry: jnp.any(carry[2] > 0), step, start)[0]
    if y.dtype.kind == "u":
        return power
    sign = lax.select(odd(y), x, x * x)
    return jnp.where(y < 0, jnp.where((x == 1) | (x + 1 == 0), sign, 0), power)


def mean(x, axis, keepdims=False) -> jax.Array:
    """Returns the mean in the array's dtype; one of integers is cut, and its sum does not wrap.

    Example:
      >>> mean(jnp.array([2**30, -5, 2**30, 2**30]), 0).item(), mean(jnp.array([-2, -1]), 0).item()
      (805306366, -1)
    """
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return jnp.mean(x, axis, keepdims=keepdims).astype(x.dtype)
    along = lambda v: jnp.sum(v, axis, keepdims=keepdims, dtype=v.dtype)
    out = jax.eval_shape(along, x)
    count = jnp.asarray(math.prod(x.shape) // max(math.prod(out.shape), 1)).astype(x.dtype)
    remainders = along(x % count)
    low = along(x // count) + remainders // count
    return low + ((low < 0) & (remainders % count != 0)).astype(x.dtype)


def complex_power(x, y) -> jax.Array:
    """Returns ``x ** y`` of complex arrays, with C's powers of 0: the real part of ``y`` decides
    between 0, infinity and NaN, which is also the power 0. XLA has NaN for most, and 1 there.

    Example:
      >>> complex_power(jnp.zeros(2, complex), jnp.array([1 + 2j, 0])).tolist()
      [0j, (nan+nanj)]
    """
    zero, real = x == 0, jnp.real(y)
    limit = jnp.where(real > 0, 0, jnp.where(real < 0, jnp.inf, jnp.nan)).astype(real.dtype)
    limit = lax.complex(limit, jnp.where(real > 0, 0, jnp.nan).astype(real.dtype))
    return jnp.where(zero, limit, lax.pow(*jnp.broadcast_arrays(jnp.where(zero, 1, x), y)))


def _reciprocal_is_exact(y) -> bool:
    """Returns whether this is known to be a power of two."""
    if isinstance(y, jax.core.Tracer) or jnp.iscomplexobj(y):
        return False
    return abs(math.frexp(y)[0]) == 0.5
