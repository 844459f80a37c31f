"""Pooling: windows as ``reduce_window``, and bins of regions."""

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics.pooling import inside, lowest, max_places, place
from anyjax.numerics.regions import region_means, samples, windows
from anyjax.onnx.core.schema import Known, Static, lowers, update
from anyjax.onnx.ops.convolution import padding
from anyjax.stablehlo.core.static_values import known, sizes


def window_of(x, auto_pad, ceil_mode, dilations, kernel, pads, strides):
    """Returns the arguments of ``reduce_window``; ``ceil_mode`` pads more at the end."""
    rank = len(kernel)
    dilations, strides = dilations or (1,) * rank, strides or (1,) * rank
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel)]
    ends = padding(auto_pad, pads, rank)
    if isinstance(ends, str):
        ends = lax.padtype_to_pads(x.shape[2:], reach, strides, ends)
    elif ceil_mode:
        every = zip(x.shape[2:], ends, reach, strides)
        ends = [(low, last(n, low, high, r, s)) for n, (low, high), r, s in every]
    return {
        "window_dimensions": (1, 1, *kernel),
        "window_strides": (1, 1, *strides),
        "padding": [(0, 0), (0, 0), *ends],
        "window_dilation": (1, 1, *dilations),
    }


def last(size, low, high, reach, stride):
    """Returns the padding at the end that completes the last window; it starts inside."""
    count = -(-(size + low + high - reach) // stride) + 1
    count -= (count - 1) * stride >= size + low
    return max(high, (count - 1) * stride + reach - size - low)


def column_major(places, shape):
    """Returns places in images whose first dimension is the fastest."""
    at = [(places // math.prod(shape[i + 1 :])) % n for i, n in enumerate(shape)]
    return sum(x * math.prod(shape[:i]) for i, x in enumerate(at))


@lowers("MaxPool")
def max_pool(X, auto_pad, ceil_mode, dilations, kernel_shape, pads, storage_order, strides):
    """The indices count through the whole input. JAX has no gradient for windows with holes; those
    go by index.
    """
    rank = len(kernel_shape)
    window = window_of(X, auto_pad, ceil_mode, dilations, kernel_shape, pads, strides)

    def places():
        return max_places(X, rank, window, nans=False)

    def indices():
        shape = X.shape[2:]
        at = column_major(places(), shape) if storage_order else places()
        image = lax.iota(at.dtype, X.shape[0] * X.shape[1]) * math.prod(shape)
        return at + image.reshape(*X.shape[:2], *[1] * rank)

    if max(dilations or (1,)) == 1:
        return lax.reduce_window(X, lowest(X.dtype), lax.max, **inside(X, window)), indices
    at = places()
    flat = X.reshape(*X.shape[:2], -1)
    out = jnp.take_along_axis(flat, at.reshape(*at.shape[:2], -1), -1, mode="clip")
    return out.reshape(at.shape), indices


def counts(x, window, pads):
    """Returns how many places of each window lie in the input, ``pads`` included."""
    along = []
    every = zip(x.shape, pads, *window.values())
    for n, (low, high), k, stride, (start, end), d in every:
        if (start, end) == (0, 0):  # the size may be a symbol
            along.append(np.array([k]))
            continue
        number = (n + start + end - d * (k - 1) - 1) // stride + 1
        at = np.arange(number)[:, None] * stride - start + np.arange(k) * d
        along.append(((at >= -low) & (at < n + high)).sum(1))
    return math.prod(np.ix_(*along))


@lowers("AveragePool")
def average_pool(X, auto_pad, ceil_mode, count_include_pad, dilations, kernel_shape, pads, strides):
    window = window_of(X, auto_pad, ceil_mode, dilations, kernel_shape, pads, strides)
    wide = X.astype(jnp.promote_types(X.dtype, np.float32))
    total = lax.reduce_window(wide, np.zeros((), wide.dtype), lax.add, **inside(X, window))
    outside = [(0, 0)] * X.ndim
    if count_include_pad:
        how = dilations, kernel_shape, pads, strides
        outside = window_of(X, auto_pad, 0, *how)["padding"]
    return (total / counts(X, window, outside).astype(wide.dtype)).astype(X.dtype)


def norm(x, p, add):
    """Returns the root of a sum of powers, with a finite gradient where all is 0."""
    if p == 1:
        return add(abs(x))
    power = add(lax.square(x) if p == 2 else abs(x) ** p)
    root = jnp.where(power > 0, power, 1)
    return jnp.where(power > 0, lax.sqrt(root) if p == 2 else root ** (1 / p), power)


@lowers("LpPool")
def lp_pool(X, auto_pad, ceil_mode, dilations, kernel_shape, p, pads, strides):
    window = window_of(X, auto_pad, ceil_mode, dilations, kernel_shape, pads, strides)
    zero = np.zeros((), X.dtype)
    return norm(X, p, lambda v: lax.reduce_window(v, zero, lax.add, **inside(v, window)))


@lowers("GlobalLpPool")
def global_lp_pool(X, p):
    return norm(X, p, lambda v: v.sum(range(2, v.ndim), keepdims=True))


update(
    {
        "GlobalAveragePool": lambda X: X.mean(range(2, X.ndim), keepdims=True),
        "GlobalMaxPool": lambda X: X.max(range(2, X.ndim), keepdims=True),
    }
)


@lowers("MaxUnpool")
def max_unpool(X, I, output_shape: Static, kernel_shape, pads, strides):
    """The indices are those of a pool of the natural size; a larger result is padded."""
    rank = len(kernel_shape)
    strides, pads = strides or (1,) * rank, pads or (0, 0) * rank
    ends = zip(X.shape[2:], strides, pads, pads[rank:], kernel_shape)
    natural = (*X.shape[:2], *((n - 1) * s - low - high + k for n, s, low, high, k in ends))
    shape = natural if output_shape is None else sizes(output_shape)
    out = place(X.reshape(1, -1), I.reshape(1, -1), math.prod(natural)).reshape(natural)
    if shape == natural:
        return out
    return lax.pad(out, np.zeros((), X.dtype), [(0, m - n, 0) for n, m in zip(natural, shape)])


@lowers("MaxRoiPool")
def max_roi_pool(X, rois, pooled_shape, spatial_scale):
    """An empty bin gives 0."""
    rois = lax.stop_gradient(rois).astype(np.float32)
    ends = rois[:, 1:] * np.float32(spatial_scale)
    first, end = (lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO) for x in jnp.split(ends, 2, 1))
    rows, columns = (
        windows(first[:, 1 - i], end[:, 1 - i], pooled_shape[i], X.shape[2 + i]) for i in (0, 1)
    )
    least = np.array(jnp.finfo(X.dtype).min, X.dtype)

    def pool(region):
        index, rows, columns = region
        x = jnp.where(columns[:, None], X[index][:, None], least).max(-1)  # channel, bin, row
        x = jnp.where(rows[:, None], x[:, None], least).max(-1)  # channel, bin, bin
        return jnp.where(rows.any(-1)[:, None] & columns.any(-1), x, 0)

    return lax.map(pool, (rois[:, 0].astype(np.int32), rows, columns))


def region_maxima(x, batch, start, extent, bins, ratio):
    """Returns the largest product of an element and its weight in each bin, and no sum of them, as
    onnxruntime has it.
    """
    axes = (1, 0)
    taps, each = zip(
        *(samples(start[:, a], extent[:, a], bins[1 - a], ratio, x.shape[3 - a]) for a in axes)
    )
    best = -np.inf
    for (i, v), (j, w) in itertools.product(*taps):
        elements = x[batch[:, None, None], :, i[:, :, None], j[:, None, :]]
        best = jnp.maximum(best, elements * (v[:, :, None] * w[:, None, :])[..., None])
    most = [t[0][0].shape[1] // n for t, n in zip(taps, bins)]
    best = best.reshape(len(batch), bins[0], most[0], bins[1], most[1], x.shape[1])
    rows, columns = (np.arange(n) < count[:, None] for n, count in zip(most, each))
    counted = rows[:, None, :, None, None, None] & columns[:, None, None, None, :, None]
    best = jnp.where(counted, best, -np.inf).max((2, 4), initial=-np.inf)
    return jnp.moveaxis(jnp.where(jnp.isfinite(best), best, 0), -1, 1)


@lowers("RoiAlign")
def roi_align(
    X, rois: Known, batch_indices, coordinate_transformation_mode, mode, output_height,
    output_width, sampling_ratio, spatial_scale,
):  # fmt: skip
    """Without a sampling ratio the regions' values decide how many samples there are."""
    if sampling_ratio <= 0:
        rois = known(rois, "the regions of RoiAlign with sampling_ratio=0")
    is_half = coordinate_transformation_mode == "half_pixel"
    ends = rois.astype(jnp.promote_types(rois.dtype, np.float32)) * spatial_scale - 0.5 * is_half
    start, extent = ends[:, :2], ends[:, 2:] - ends[:, :2]
    extent = extent if is_half else extent.clip(1)
    bins, x = (output_height, output_width), X.astype(jnp.promote_types(X.dtype, np.float32))
    how = batch_indices, start, extent, bins, sampling_ratio
    if mode == "avg":
        return region_means(x[:, :, None, None], *how, 1).astype(X.dtype)
    return region_maxima(x, *how).astype(X.dtype)


@lowers("RoiAlign@10")
def roi_align_10(X, rois: Known, batch_indices, /, *how):
    """Corners of pixels are whole numbers."""
    return roi_align(X, rois, batch_indices, "output_half_pixel", *how)
