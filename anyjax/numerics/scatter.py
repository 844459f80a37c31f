"""Products of elements that meet at the same places."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


@partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def multiply_at(x, at, values, mode: str | None = None, wrap: bool = True) -> jax.Array:
    """Returns ``x.at[at].multiply(values)``, which JAX cannot differentiate where places repeat.

    Args:
      mode, wrap: as in ``x.at[at]``: what happens outside of ``x``, and at negative places.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> x, at = jnp.array([2.0, 5.0]), jnp.array([0, 0])
      >>> jax.grad(lambda v: multiply_at(x, at, v).sum())(jnp.array([3.0, 0.0])).tolist()
      [0.0, 6.0]
    """
    return x.at[at].multiply(values, mode=mode, wrap_negative_indices=wrap)


@multiply_at.defjvp
def _jvp(mode, wrap, primals, tangents) -> Any:
    """Differentiates by a factor: the product of the moved, also where there are zeros."""
    (x, at, values), (dx, _, dvalues) = primals, tangents
    x_zero, zero = x == 0, values == 0
    options = {"mode": mode, "wrap_negative_indices": wrap}
    zeros = x_zero.astype("int32").at[at].add(zero.astype("int32"), **options)
    nonzero = lambda x, zero: jnp.where(zero, 1, x)
    product = nonzero(x, x_zero).at[at].multiply(nonzero(values, zero), **options)
    by = lambda x, zero, zeros, product: jnp.where(zeros == zero, product / nonzero(x, zero), 0)
    tangent = dx * by(x, x_zero, zeros, product)
    moved = dvalues * by(values, zero, zeros[at], product[at])
    return multiply_at(x, at, values, mode, wrap), tangent.at[at].add(moved, **options)
