"""Resizing and sampling on grids.

Every resize is the same sum along one dimension after another: ``taps`` elements of the input at
static places with static weights, numpy constants that follow ATen/native/UpSample.h.
"""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from anyjax.errors import Unsupported
from anyjax.numerics.sampling import (
    affine_grid,
    as_numbers,
    cubic,
    lines,
    sample_grid,
    tapped,
    weighted,
    windows,
)
from anyjax.torch.core.schema import aten, table
from anyjax.torch.ops._operands import wide


def step_of(size, out, align_corners, factor):
    """Input elements per output element; a given factor counts, not the rounded sizes."""
    xp, size, out = as_numbers(size, out)
    if align_corners:
        last = out - 1
        return (
            (size - 1) / (last or 1) * (last > 0) if xp is np else (size - 1) / jnp.maximum(last, 1)
        )
    return 1 / factor if factor else size / out


def source(size, out, align_corners, factor):
    """Where on the input each output element lies, and numpy or jnp."""
    xp, *_ = as_numbers(size, out)
    step = step_of(size, out, align_corners, factor)
    at = xp.arange(out) * step if align_corners else (xp.arange(out) + 0.5) * step - 0.5
    return at, xp


def linear_taps(size, out, align_corners, factor):
    at, xp = source(size, out, align_corners, factor)
    at = xp.maximum(at, 0)
    low = xp.minimum(at.astype(np.int32), size - 1)
    fraction = xp.clip(at - low, 0, 1)
    return xp.stack([low, xp.minimum(low + 1, size - 1)], 1), xp.stack([1 - fraction, fraction], 1)


def cubic_taps(size, out, align_corners, factor):
    """Taps beyond an end fall together at the end, as one."""
    at, xp = source(size, out, align_corners, factor)
    places = xp.floor(at).astype(np.int32)[:, None] + np.arange(-1, 3)
    weights = cubic(at[:, None] - places, -0.75)
    places = xp.clip(places, 0, size - 1)
    same = places[:, :, None] == places[:, None, :]
    first = same.argmax(2) == np.arange(4)
    return places, xp.where(first, (same * weights[:, None, :]).sum(2), 0)


def antialias_taps(kernel, radius):
    """A kernel that widens with the step when shrinking, as in Pillow; over all elements of a
    symbolic size, without places.
    """

    def taps(size, out, align_corners, factor):
        xp, *_ = as_numbers(size, out)
        step = step_of(size, out, align_corners, factor)
        wide = xp.maximum(step, 1.0)
        middle = step * (xp.arange(out) + 0.5)
        first = xp.maximum((middle - radius * wide + 0.5).astype(np.int32), 0)
        last = xp.minimum((middle + radius * wide + 0.5).astype(np.int32), size)
        if xp is np:
            places = first[:, None] + np.arange((last - first).max(initial=1))
            counts = places < last[:, None]
        else:
            places, counts = jnp.arange(size)[None], windows(size, first, last)
        weights = kernel((places - middle[:, None] + 0.5) / wide) * counts
        weights = weights / weights.sum(1, keepdims=True)
        return np.minimum(places, size - 1) if xp is np else None, weights

    return taps


def fixed_point(weights):
    """Weights as 16-bit whole numbers, and the bits behind the point, for uint8 images."""
    bits = next(b for b in range(22) if int(0.5 + weights.max() * 2 ** (b + 1)) >= 1 << 15)
    return np.round(weights * 2.0**bits).astype(np.int32), bits


def resize(x, sizes, taps, align_corners, factors):
    """The sums of ``taps``, the last dimension first; uint8 is rounded and clipped each time."""
    image = x.dtype == jnp.uint8
    out = x.astype(jnp.int32) if image else wide(x)
    axes = range(x.ndim - len(sizes), x.ndim)
    for axis, size, factor in reversed(list(zip(axes, sizes, factors, strict=True))):
        if out.shape[axis] == size and (factor is None or factor == 1 or align_corners):
            continue
        places, weights = taps(out.shape[axis], size, align_corners, factor)
        if image and isinstance(weights, jax.Array):
            raise symbolic("an image of uint8", "the weights of its lines are whole numbers")
        weights, bits = fixed_point(weights) if image else (weights.astype(out.dtype), 0)
        if places is None:
            out = weighted(out, weights, axis)
        else:
            out = tapped(out, places, weights, axis)
        if image:
            out = lax.clamp(0, (out + (1 << (bits - 1))) >> bits, 255)
    return out.astype(x.dtype)


def nearest(x, sizes, factors, exact):
    """Places are worked out in float32, as torch does."""
    for axis, out, factor in zip(range(x.ndim - len(sizes), x.ndim), sizes, factors, strict=True):
        size = x.shape[axis]
        xp, *_ = as_numbers(size, out)
        step = xp.float32(step_of(size, out, False, factor))
        at = xp.floor((xp.arange(out, dtype=np.float32) + np.float32(0.5 * exact)) * step)
        x = lines(x, xp.minimum(at.astype(np.int32), size - 1), axis)
    return x


def triangle(x):
    return (jnp if isinstance(x, jax.Array) else np).maximum(1 - abs(x), 0)


def lanczos(x):
    xp = jnp if isinstance(x, jax.Array) else np
    return xp.where(abs(x) < 3, xp.sinc(x) * xp.sinc(x / 3), 0)


def with_corners(taps):
    """The rows of an interpolation that may align corners, and of its .vec overloads."""

    def by_sizes(x, sizes, align_corners, /, *factors):
        return resize(x, sizes, taps, align_corners, factors)

    def vec(input, output_size, align_corners, scale_factors):
        sizes, factors = sizes_of(input, output_size, scale_factors)
        return resize(input, sizes, taps, align_corners, factors)

    return by_sizes, vec


def by_nearest(exact):
    """The rows of nearest-neighbour interpolation."""

    def by_sizes(x, sizes, /, *factors):
        return nearest(x, sizes, factors, exact)

    def vec(input, output_size, scale_factors):
        return nearest(input, *sizes_of(input, output_size, scale_factors), exact)

    return by_sizes, vec


def sizes_of(input, output_size, scale_factors):
    """The .vec overloads give sizes, or factors to work them out from."""
    if output_size is not None:
        return output_size, [None] * len(output_size)
    spatial = input.shape[-len(scale_factors) :]
    return [_scaled(n, f) for n, f in zip(spatial, scale_factors, strict=True)], scale_factors


def _scaled(size, factor):
    """Returns the whole part of a product, of a symbolic size by a fraction that is exact."""
    if isinstance(size, int):
        return int(size * factor)
    exact = Fraction(factor)
    if exact.denominator > 64:
        raise symbolic(f"scale_factor={factor}", "the product is rounded, and no fraction is that")
    return size * exact.numerator // exact.denominator


def symbolic(what, why):
    """Returns the error for a resize whose size is not known."""
    return Unsupported(
        f"{what} in a resize of, or to, a symbolic size",
        why=why,
        do="give size= in place of scale_factor=, or fix that size",
    )


for _name, (_run, _vec) in {
    "upsample_nearest": by_nearest(exact=False),
    "_upsample_nearest_exact": by_nearest(exact=True),
    "upsample_linear": with_corners(linear_taps),
    "upsample_bilinear": with_corners(linear_taps),
    "upsample_trilinear": with_corners(linear_taps),
    "upsample_bicubic": with_corners(cubic_taps),
    "_upsample_bilinear2d_aa": with_corners(antialias_taps(triangle, 1)),
    "_upsample_bicubic2d_aa": with_corners(antialias_taps(lambda x: cubic(x, -0.5), 2)),
    "_upsample_lanczos2d_aa": with_corners(antialias_taps(lanczos, 3)),
}.items():
    for _rank in (1, 2, 3):
        _op = getattr(torch.ops.aten, _name if "2d" in _name else f"{_name}{_rank}d", None)
        if _op is not None and (_rank == 2 or "2d" not in _name):
            table.update({_op.default: _run, _op.vec: _vec})


table.update(
    dict.fromkeys((aten.grid_sampler, aten.grid_sampler_2d, aten.grid_sampler_3d), sample_grid)
)
table.update({aten.affine_grid_generator: affine_grid})
