"""Weighted sums of elements at places of an array: static ones, and those of a grid."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import x64


def cubic(x, a):
    """The cubic convolution kernel."""
    x, xp = abs(x), jnp if isinstance(x, jax.Array) else np
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, a * (((x - 5) * x + 8) * x - 4)
    return xp.where(x <= 1, near, xp.where(x < 2, far, 0))


def as_numbers(*sizes):
    """Returns (numpy, the sizes), or where one is symbolic (jnp, its numbers in the program)."""
    if all(isinstance(n, (int, np.integer)) for n in sizes):
        return np, *sizes
    real = jnp.float64 if x64() else jnp.float32
    return jnp, *(jnp.asarray(n).astype(real) for n in sizes)


def windows(size, start, end):
    """Returns which of all elements [bins, size] lie in each bin, for a symbolic size."""
    at = jnp.arange(size)
    return (at >= start[:, None]) & (at < end[:, None])


def weighted(x, weights, axis):
    """Returns the sums of all elements along an axis times weights [out, size]."""
    return jnp.moveaxis(jnp.tensordot(x, weights, ((axis,), (1,)), precision="highest"), -1, axis)


def tapped(x, places, weights, axis):
    """The weighted sum of the elements at ``places`` (out, taps) along ``axis``.

    A few taps one by one: XLA fuses them, and jaxlib 0.10 crashes on CPUs in sums over products of
    more than seven dimensions.
    """
    xp = jnp if isinstance(weights, jax.Array) else np
    weights = xp.expand_dims(weights, tuple(range(2, x.ndim - axis + 1)))
    if places.shape[1] > 4:
        return (jnp.take(x, places, axis, mode="clip") * weights).sum(axis + 1)
    taps = zip(places.T, xp.moveaxis(weights, 1, 0), strict=True)
    return sum(jnp.take(x, place, axis, mode="clip") * weight for place, weight in taps)


def lines(x, places, axis):
    """Returns the elements at static places along an axis; a whole factor is a repetition."""
    size, out = x.shape[axis], places.shape[0]
    if (
        isinstance(places, np.ndarray)
        and size
        and out % size == 0
        and np.array_equal(places, np.arange(out) * size // out)
    ):
        return x if out == size else jnp.repeat(x, out // size, axis)
    return jnp.take(x, places, axis, mode="clip")


def reflect(at, low, high):
    """Coordinates folded back at both ends until they lie between them."""
    span = high - low
    if span == 0:
        return jnp.zeros_like(at)
    away = abs(at - low)
    rest, flips = lax.rem(away, jnp.full_like(away, span)), jnp.floor(away / span)
    return jnp.where(flips % 2 == 0, rest + low, span - rest + low)


def into(at, size, padding_mode, align_corners):
    """Coordinates after padding: 0 zeros (later), 1 border, 2 reflection.

    At the border and beyond it the gradient is 0; what is no number counts as 0.
    """
    if padding_mode == 2:
        at = reflect(at, 0, size - 1) if align_corners else reflect(at, -0.5, size - 0.5)
    if not padding_mode:
        return at
    return lax.clamp(at.dtype.type(0), jnp.where(at == at, at, 0), at.dtype.type(size - 1))


def grid_taps(at, size, mode, padding_mode, align_corners):
    """[(coordinate, weight), ...] in one dimension; 0 linear, 1 nearest, 2 cubic."""
    if mode == 2:
        low = jnp.floor(at)
        fraction = at - low
        taps = [(low + i, cubic_traced(fraction - i, -0.75)) for i in range(-1, 3)]
        return [(into(c, size, padding_mode, align_corners), w) for c, w in taps]
    at = into(at, size, padding_mode, align_corners)
    if mode == 1:
        return [(jnp.round(at), 1)]
    low = lax.stop_gradient(jnp.floor(at))
    return [(low, low + 1 - at), (low + 1, at - low)]


def cubic_traced(x, a):
    """The cubic convolution kernel up to a distance of 2, of computed distances."""
    x = abs(x)
    return jnp.where(x <= 1, ((a + 2) * x - (a + 3)) * x * x + 1, a * (((x - 5) * x + 8) * x - 4))


def sample_grid(x, grid, mode, padding_mode, align_corners, /):
    """Samples [N, C, *sizes] at a grid [N, *points, rank]: a sum over taps of gathered elements.

    ``mode`` is 0 linear, 1 nearest, 2 cubic. The grid names the last dimension first.

    Without padding an infinite position gives NaN in two dimensions, 0 in three.
    """
    sizes, points, dtype = x.shape[2:], grid.shape[1:-1], x.dtype
    x, grid = (v.astype(jnp.promote_types(v.dtype, jnp.float32)) for v in (x, grid))
    taps = []
    for size, g in zip(sizes, jnp.moveaxis(grid, -1, 0)[::-1], strict=True):
        g = g.reshape(len(g), 1, -1)
        at = (g + 1) / 2 * (size - 1) if align_corners else ((g + 1) * size - 1) / 2
        taps.append(grid_taps(at, size, mode, padding_mode, align_corners))
    flat, out = x.reshape(*x.shape[:2], math.prod(sizes)), jnp.zeros((), x.dtype)
    for tap in itertools.product(*taps):
        place, inside, weight = 0, True, 1
        for size, (c, w) in zip(sizes, tap, strict=True):
            place = place * size + jnp.clip(c, 0, size - 1).astype(jnp.int32)
            inside, weight = inside & (c >= 0) & (c <= size - 1), weight * w
        samples = jnp.take_along_axis(flat, place, -1, mode="clip")
        samples = jnp.where(inside, samples, 0) * weight
        out = out + (samples if len(sizes) == 2 else jnp.where(inside, samples, 0))
    return out.reshape(*x.shape[:2], *points).astype(dtype)


def affine_grid(theta, size, align_corners, /):
    """Returns the grid [N, *size[2:], rank] of affine maps [N, rank, rank + 1]."""
    lines = [_between(n, align_corners) for n in size[2:]]
    xp = jnp if any(isinstance(x, jax.Array) for x in lines) else np
    base = xp.stack([*xp.meshgrid(*lines, indexing="ij")[::-1], xp.ones(size[2:])], -1)
    return jnp.einsum("...j,nij->n...i", base.astype(theta.dtype), theta)


def _between(size, align_corners):
    """Returns as many numbers between -1 and 1: the ends, or the middles of equal parts."""
    xp, n = as_numbers(size)
    if xp is np:
        end = 1 if align_corners else (n - 1) / n
        return np.linspace(-end, end, n) if n > 1 else np.zeros(n)
    at = jnp.arange(size, dtype=n.dtype)
    return (2 * at - (n - 1)) / (jnp.maximum(n - 1, 1) if align_corners else n)
