"""Bessel and Airy functions, which JAX has not, from their integrals.

Up to 25 by Gauss-Legendre quadrature of the integrals of Bessel and Schläfli
(https://dlmf.nist.gov/10.9 and 10.32), beyond by Hankel's expansions (https://dlmf.nist.gov/10.17
and 9.7), near 0 by their first terms.
"""

from __future__ import annotations

import functools
import math

import jax.numpy as jnp
import numpy as np
from jax import lax

SMALL, LARGE = 1e-4, 25.0
EULER = 0.5772156649015329


@functools.cache
def quadrature(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns nodes and weights of Gauss and Legendre."""
    return np.polynomial.legendre.leggauss(count)


def _integral(function, top):
    """Integrates function(t) over [0, top], elementwise; the nodes are the last axis."""
    nodes, weights = quadrature(64)
    top = jnp.asarray(top)[..., None] / 2
    t = top * (nodes + 1).astype(top.dtype)
    return jnp.sum(top * weights.astype(top.dtype) * function(t), -1)


def _hankel(x, order):
    """(J, Y) of order 0 or 1 for large x; cos and sin of x keep their full accuracy."""
    terms = [jnp.ones_like(x)]
    for k in range(1, 6):
        terms.append(terms[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k * x))
    p, q = terms[0] - terms[2] + terms[4], terms[1] - terms[3] + terms[5]
    plus, minus = lax.sin(x) + lax.cos(x), lax.sin(x) - lax.cos(x)
    cos, sin = (minus, -plus) if order else (plus, minus)
    size = lax.rsqrt(math.pi * x)
    return size * (p * cos - q * sin), size * (p * sin + q * cos)


def _clipped(x):
    return jnp.clip(x, SMALL, LARGE)


def bessel_j(order):
    """J of order 0 or 1.

    Example:
      >>> round(float(bessel_j(0)(jnp.zeros(()))), 5)
      1.0
    """

    def function(x):
        size = abs(x)
        inner = jnp.minimum(size, LARGE)[..., None]
        near = (
            _integral(lambda t: lax.cos(inner * lax.sin(t) - order * t), jnp.full_like(x, math.pi))
            / math.pi
        )
        far = _hankel(jnp.maximum(size, LARGE), order)[0]
        out = jnp.where(size > LARGE, jnp.where(size == jnp.inf, 0, far), near)
        return jnp.where(size < SMALL, x / 2, out * lax.sign(x)) if order else out

    return function


def bessel_y(order):
    """Y of order 0 or 1.

    Example:
      >>> float(bessel_y(0)(jnp.zeros(())))
      -inf
    """

    def function(x):
        inner = _clipped(x)
        z, top = inner[..., None], lax.asinh(40 / inner)
        wave = _integral(lambda t: lax.sin(z * lax.sin(t) - order * t), jnp.full_like(x, math.pi))
        weight = lax.sinh if order else jnp.ones_like
        near = (
            wave - 2 * _integral(lambda t: weight(t) * lax.exp(-z * lax.sinh(t)), top)
        ) / math.pi
        first = -2 / (math.pi * x) if order else 2 / math.pi * (lax.log(x / 2) + EULER)
        out = jnp.where(
            x > LARGE, _hankel(jnp.maximum(x, LARGE), order)[1], jnp.where(x < SMALL, first, near)
        )
        out = jnp.where(x == 0, -jnp.inf, jnp.where(x < 0, jnp.nan, out))
        return jnp.where(x == jnp.inf, 0, out)

    return function


def bessel_k(order, scaled):
    """K of order 0 or 1, times exp(x) if ``scaled``.

    Example:
      >>> float(bessel_k(1, False)(jnp.zeros(())))
      inf
    """

    def function(x):
        inner = jnp.maximum(x, SMALL)
        z, top = inner[..., None], lax.acosh(1 + 40 / inner)
        weight = lax.cosh if order else jnp.ones_like
        near = _integral(lambda t: weight(t) * lax.exp(-2 * z * lax.sinh(t / 2) ** 2), top)
        near = near if scaled else near * lax.exp(-inner)
        first = 1 / x if order else -lax.log(x / 2) - EULER
        first = first * lax.exp(x) if scaled else first
        out = jnp.where(
            x == 0, jnp.inf, jnp.where(x < 0, jnp.nan, jnp.where(x < SMALL, first, near))
        )
        return jnp.where(x == jnp.inf, 0, out)

    return function


def airy_ai(x):
    """By Bessel functions of order 1/3 of z = 2/3 |x|**1.5.

    Example:
      >>> round(float(airy_ai(jnp.ones(()))), 4)
      0.1353
    """
    size = jnp.maximum(abs(x), 1e-3)
    exact = 2 / 3 * size * lax.sqrt(size)
    z = exact[..., None]
    decay = _integral(
        lambda t: lax.cosh(t / 3) * lax.exp(-2 * z * lax.sinh(t / 2) ** 2),
        lax.acosh(1 + 40 / exact),
    )
    right = lax.sqrt(size / 3) / math.pi * decay * lax.exp(-exact)
    inner = jnp.minimum(exact, LARGE)
    z = inner[..., None]
    wave = _integral(lambda t: lax.cos(t / 3) * lax.cos(z * lax.sin(t)), jnp.full_like(x, math.pi))
    tail = _integral(lambda t: lax.sinh(t / 3) * lax.exp(-z * lax.sinh(t)), lax.asinh(40 / inner))
    decaying = lax.sqrt(size) / 3 * (2 * wave + math.sqrt(3) * tail) / math.pi
    far = jnp.maximum(exact, LARGE)
    even, odd = 1 - 385 / 10368 / far**2, 5 / 72 / far - 85085 / 2239488 / far**3
    cos, sin = lax.cos(far + math.pi / 4), lax.sin(far + math.pi / 4)
    waves = (sin * even - cos * odd) / (math.sqrt(math.pi) * size**0.25)
    out = jnp.where(x > 0, right, jnp.where(exact > LARGE, waves, decaying))
    return jnp.where(abs(x) < 1e-3, 0.3550280538878172 - 0.2588194037928068 * x, out)


def spherical_j0(x):
    """sin(x) / x.

    Example:
      >>> float(spherical_j0(jnp.zeros(())))
      1.0
    """
    return jnp.where(abs(x) == jnp.inf, 0, jnp.sinc(x / math.pi))
