"""Linear algebra and Fourier transforms that StableHLO has operations for, and Householder's
factorization and product of reflectors with derivatives: JAX has them for ``qr`` alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.stablehlo.core.schema import lowers


@lowers("stablehlo.cholesky")
def cholesky(a, lower):
    factor = lax.linalg.cholesky(a if lower else jnp.conj(jnp.swapaxes(a, -1, -2)))
    return factor if lower else jnp.conj(jnp.swapaxes(factor, -1, -2))


@lowers("stablehlo.triangular_solve")
def triangular_solve(a, b, left_side, lower, unit_diagonal, transpose_a):
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=left_side,
        lower=lower,
        transpose_a=transpose_a in ("TRANSPOSE", "ADJOINT"),
        conjugate_a=transpose_a == "ADJOINT",
        unit_diagonal=unit_diagonal,
    )


@lowers("stablehlo.fft")
def fft(operand, fft_type, fft_length):
    return lax.fft(operand, fft_type, tuple(fft_length))


@jax.custom_jvp
def geqrf(a):
    """Returns R above the reflectors, and their factors, as LAPACK does."""
    r, taus = jnp.linalg.qr(a, mode="raw")
    return jnp.swapaxes(r, -1, -2), taus


@geqrf.defjvp
def _(primals, tangents):
    return geqrf(*primals), jax.jvp(batched(packed, 2), primals, tangents)[1]


@jax.custom_jvp
def householder_product(a, taus):
    """Returns the first columns of the product of the reflectors below the diagonal of ``a``."""
    return lax.linalg.householder_product(a, taus)


@householder_product.defjvp
def _(primals, tangents):
    return householder_product(*primals), jax.jvp(batched(multiplied, 2, 1), primals, tangents)[1]


def batched(function, *ranks):
    """Maps a function over all axes before the last ones."""

    def mapped(*args):
        f = function
        for _ in range(args[0].ndim - ranks[0]):
            f = jax.vmap(f)
        return f(*args)

    return mapped


def packed(a):
    """Factorizes by LAPACK's algorithm, a column at a time."""
    m, n = a.shape
    rows = jnp.arange(m)

    def step(a, j):
        column = a[:, j]
        below = jnp.where(rows > j, column, 0)
        alpha, norm2 = column[j], jnp.sum(jnp.real(below * jnp.conj(below)))
        trivial = (norm2 == 0) & (jnp.imag(alpha) == 0)  # nothing to reflect
        length = jnp.sqrt(jnp.where(trivial, 1, jnp.real(alpha * jnp.conj(alpha)) + norm2))
        beta = jnp.where(trivial, jnp.real(alpha), -jnp.sign(jnp.real(alpha)) * length)
        beta = jnp.where((jnp.real(alpha) == 0) & ~trivial, -length, beta).astype(a.dtype)
        tau = jnp.where(trivial, 0, (beta - alpha) / jnp.where(trivial, 1, beta))
        v = jnp.where(rows == j, 1, below / jnp.where(trivial, 1, alpha - beta))
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
