"""Householder's factorization and what is made from its reflectors, with the derivatives that JAX
gives to ``qr`` as a whole, but not to its two parts.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


@jax.custom_jvp
def geqrf(a):
    """(R above the reflectors, their factors), as LAPACK has them."""
    r, taus = jnp.linalg.qr(a, mode="raw")
    return jnp.swapaxes(r, -1, -2), taus


@geqrf.defjvp
def _(primals, tangents):
    return geqrf(*primals), jax.jvp(batched(packed, 2), primals, tangents)[1]


@jax.custom_jvp
def householder_product(a, taus):
    """The first columns of the product of the reflectors below the diagonal of ``a``."""
    return lax.linalg.householder_product(a, taus)


@householder_product.defjvp
def _(primals, tangents):
    return householder_product(*primals), jax.jvp(batched(multiplied, 2, 1), primals, tangents)[1]


def batched(function, *ranks):
    """Over all axes before the last ones."""

    def mapped(*args):
        f = function
        for _ in range(args[0].ndim - ranks[0]):
            f = jax.vmap(f)
        return f(*args)

    return mapped


def packed(a):
    """LAPACK's algorithm, a column at a time."""
    m, n = a.shape
    rows = jnp.arange(m)

    def step(a, j):
        column = a[:, j]
        below = jnp.where(rows > j, column, 0)
        alpha, rest = column[j], jnp.sum(jnp.real(below * jnp.conj(below)))
        plain = (rest == 0) & (jnp.imag(alpha) == 0)  # nothing to reflect
        length = jnp.sqrt(jnp.where(plain, 1, jnp.real(alpha * jnp.conj(alpha)) + rest))
        beta = jnp.where(plain, jnp.real(alpha), -jnp.sign(jnp.real(alpha)) * length)
        beta = jnp.where((jnp.real(alpha) == 0) & ~plain, -length, beta).astype(a.dtype)
        tau = jnp.where(plain, 0, (beta - alpha) / jnp.where(plain, 1, beta))
        v = jnp.where(rows == j, 1, below / jnp.where(plain, 1, alpha - beta))
        later = jnp.where(jnp.arange(n) > j, jnp.conj(v) @ a, 0)
        a = a - jnp.conj(tau) * jnp.outer(v, later)
        return a.at[:, j].set(jnp.where(rows > j, v, jnp.where(rows == j, beta, column))), tau

    return lax.scan(step, a, jnp.arange(min(m, n)))


def multiplied(a, taus):
    m, n = a.shape
    rows = jnp.arange(m)

    def step(q, j):
        v = jnp.where(rows > j, a[:, j], (rows == j).astype(a.dtype))
        return q - taus[j] * jnp.outer(v, jnp.conj(v) @ q), None

    order = jnp.arange(taus.shape[0])[::-1]
    return lax.scan(step, jnp.eye(m, n, dtype=a.dtype), order)[0]
