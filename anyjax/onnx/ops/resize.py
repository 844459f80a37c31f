"""Resizing along one axis after another, sampling on grids, and pixels that move as they are."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import is_float
from anyjax.errors import Unsupported
from anyjax.numerics.sampling import affine_grid, cubic, lines, sample_grid, tapped
from anyjax.onnx.core.schema import Static, lowers
from anyjax.stablehlo.core.static_values import sizes as as_sizes

F = np.float32


def fixed_size(size):
    """Checks that the size of an axis that is resized is a number."""
    if isinstance(size, (int, np.integer)):
        return int(size)
    raise Unsupported(
        f"resizing of, or to, {size} lines, a symbolic size",
        why="the weights of its lines are worked out while tracing",
        do="give the image a fixed height and width; the batch may stay symbolic",
    )


# Where a line of the result lies: (line, size, size of the result, scale, start, end) -> line.
COORDINATES = {
    "half_pixel": lambda x, n, m, s, *_: (x + F(0.5)) / s - F(0.5),
    "half_pixel_symmetric": lambda x, n, m, s, *_: (
        F(n / 2) * (1 - m / (s * F(n))) + (x + F(0.5)) / s - F(0.5)
    ),
    "pytorch_half_pixel": lambda x, n, m, s, *_: (x + F(0.5)) / s - F(0.5) if m > 1 else 0 * x,
    "align_corners": lambda x, n, m, *_: x * F(n - 1) / F(m - 1) if m > 1 else 0 * x,
    "asymmetric": lambda x, n, m, s, *_: x / s,
    "tf_half_pixel_for_nn": lambda x, n, m, s, *_: (x + F(0.5)) / s,
    "tf_crop_and_resize": lambda x, n, m, s, low, high: (
        low * F(n - 1) + x * (high - low) * F(n - 1) / F(m - 1)
        if m > 1
        else F(0.5) * (low + high) * F(n - 1) + 0 * x
    ),
}
ROUNDING = {
    "round_prefer_floor": lambda x, s: np.ceil(x - F(0.5)),
    "round_prefer_ceil": lambda x, s: np.floor(x + F(0.5)),
    "floor": lambda x, s: np.floor(x),
    "ceil": lambda x, s: np.ceil(x),
    "simple": lambda x, s: np.ceil(x) if s < 1 else np.floor(x),  # as versions before 11 round
}


def weights_of(at, size, scale, mode, a, antialias, exclude_outside):
    """Returns places and weights of taps; those beyond the ends count at the ends, or not."""
    wide = np.minimum(scale, F(1)) if antialias else F(1)
    radius = int(np.ceil((2 if mode == "cubic" else 1) / wide)) + bool(antialias)
    places = np.floor(at)[:, None] + np.arange(1 - radius, 1 + radius, dtype=F)
    distance = (places - at[:, None]) * wide
    weights = cubic(distance, a) if mode == "cubic" else np.maximum(1 - abs(distance), 0)
    if exclude_outside:
        weights = np.where((places >= 0) & (places < size), weights, 0)
    if antialias or exclude_outside:
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return places.clip(0, size - 1).astype(np.int64), weights


def lines_at(x, axis, at, scale, rounding, mode, *how):
    """Returns the lines between those along an axis: the nearest, or weighted sums."""
    if mode == "nearest":
        places = ROUNDING[rounding](at, scale).clip(0, x.shape[axis] - 1).astype(np.int64)
        return lines(x, places, axis)
    places, weights = weights_of(at, x.shape[axis], scale, mode, *how)
    return tapped(x, places, weights.astype(x.dtype), axis)


def outside_set(x, axis, outside, value):
    """Returns x with a value in the lines that are outside."""
    mask = np.expand_dims(outside, (*range(1, x.ndim - axis),))
    return jnp.where(mask, jnp.asarray(value, x.dtype), x)


def targets(shape, scales, sizes, policy):
    """Returns the sizes of the result along the axes, and the scales."""
    if scales is not None and scales.size:
        pairs = list(zip(shape, map(F, scales)))
        return [n if s == 1 else int(np.floor(fixed_size(n) * s)) for n, s in pairs], scales
    sizes = as_sizes(sizes)
    scales = [F(1) if n == m else F(fixed_size(m)) / F(fixed_size(n)) for n, m in zip(shape, sizes)]
    if policy != "stretch":
        scale = min(scales) if policy == "not_larger" else max(scales)
        scales = [scale] * len(sizes)
        sizes = [int(scale * n + F(0.5)) for n in shape]
    return sizes, scales


@lowers("Resize")
def resize(
    X, roi: Static, scales: Static, sizes: Static, antialias, axes, coordinate_transformation_mode,
    cubic_coeff_a, exclude_outside, extrapolation_value, keep_aspect_ratio_policy, mode,
    nearest_mode,
):  # fmt: skip
    """Lines, scales and weights are worked out in float32. Linear interpolation cuts integers; one
    without aliases rounds them after each axis, of which the last is the first. With corners
    aligned the length of the result is a whole number, as in onnxruntime and torch.
    """
    axes = [axis % X.ndim for axis in (range(X.ndim) if axes is None else axes)]
    is_crop = coordinate_transformation_mode == "tf_crop_and_resize"
    passes = passes_of(X, axes, scales, sizes, keep_aspect_ratio_policy, roi if is_crop else None)
    x = X if mode == "nearest" else X.astype(jnp.promote_types(X.dtype, F))
    place = COORDINATES[coordinate_transformation_mode]
    outside = extrapolation_value if is_crop else None
    how = nearest_mode, mode, cubic_coeff_a, antialias, exclude_outside
    for axis, size, scale, end in passes[::-1] if antialias else passes:
        if scale == 1 and tuple(end) == (0, 1) and size == X.shape[axis]:
            continue
        x = resized(x, axis, size, scale, end, place, outside, how)
        if antialias and not is_float(X.dtype):
            x = narrowed(x, X.dtype, antialias_rounding).astype(x.dtype)
    cuts = mode == "linear" and not antialias
    return x if x.dtype == X.dtype else narrowed(x, X.dtype, jnp.trunc if cuts else jnp.round)


def passes_of(X, axes, scales, sizes, keep_aspect_ratio_policy, roi):
    """Returns (axis, size, scale, ends of what is kept) of each pass."""
    sizes, scales = targets([X.shape[i] for i in axes], scales, sizes, keep_aspect_ratio_policy)
    ends = [(F(0), F(1))] * len(axes) if roi is None else roi.reshape(2, -1).T
    return [*zip(axes, sizes, map(F, scales), ends)]


def resized(x, axis, size, scale, end, place, outside, how):
    """Resizes one axis; ``outside`` stands where a crop reaches beyond it, None without one."""
    n, m = fixed_size(x.shape[axis]), fixed_size(size)
    at = place(np.arange(m, dtype=F), n, m, scale, *end)
    x = lines_at(x, axis, at, scale, *how)
    return x if outside is None else outside_set(x, axis, (at < 0) | (at > n - 1), outside)


def antialias_rounding(x):
    """Rounds halves away from zero."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


def narrowed(x, dtype, whole):
    """Returns x in a dtype, whole and within its limits where that is one of integers."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return x.astype(dtype)
    limits = jnp.iinfo(dtype)
    return whole(x).clip(limits.min, limits.max).astype(dtype)


@lowers("Resize@10", "Upsample")
def resize_10(X, scales: Static, mode):
    mode = "linear" if mode == "bilinear" else mode
    how = 0, None, "asymmetric", -0.75, 0, 0.0, "stretch", mode, "simple"
    return resize(X, None, scales, None, *how)


@lowers("Upsample@1")
def upsample_1(X, height_scale, mode, width_scale):
    return resize_10(X, np.array([1, 1, height_scale, width_scale], F), mode)


MODES = {"linear": 0, "bilinear": 0, "nearest": 1, "cubic": 2, "bicubic": 2}
PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


@lowers("GridSample")
def grid_sample(X, grid, align_corners, mode, padding_mode):
    return sample_grid(X, grid, MODES[mode], PADDINGS[padding_mode], align_corners)


@lowers("AffineGrid")
def grid_of(theta, size: Static, align_corners):
    return affine_grid(theta, as_sizes(size), align_corners)


@lowers("CenterCropPad")
def center_crop_pad(input_data, shape: Static, axes):
    axes = range(input_data.ndim) if axes is None else [a % input_data.ndim for a in axes]
    margins = [(0, 0, 0)] * input_data.ndim
    for axis, size in zip(axes, as_sizes(shape)):
        extra = size - input_data.shape[axis]
        low = extra // 2 if extra > 0 else -(-extra // 2)
        margins[axis] = (low, extra - low, 0)
    return lax.pad(input_data, jnp.zeros((), input_data.dtype), margins)


@lowers("DepthToSpace")
def depth_to_space(input, blocksize, mode):
    n, c, h, w = input.shape
    if mode == "DCR":
        x = input.reshape(n, blocksize, blocksize, -1, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        x = input.reshape(n, -1, blocksize, blocksize, h, w).transpose(0, 1, 4, 2, 5, 3)
    return x.reshape(n, c // blocksize**2, h * blocksize, w * blocksize)


@lowers("SpaceToDepth")
def space_to_depth(input, blocksize, mode):
    n, c, h, w = input.shape
    h, w = h // blocksize, w // blocksize
    x = input.reshape(n, c, h, blocksize, w, blocksize)
    x = x.transpose((0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return x.reshape(n, c * blocksize**2, h, w)
