"""Elements at computed places of images: bins of regions, and a convolution's shifted windows."""

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
import numpy as np


def samples(start, extent, bins, ratio, length):
    """Along one axis, [region, bin * sample]: two (place, weight) between which each sample lies,
    and the number of samples in a bin. Without a ratio the values decide how many there are.
    """
    count = ratio if ratio > 0 else np.ceil(extent / bins)
    most = ratio if ratio > 0 else int(count.max(initial=0))
    step, place = (extent / bins)[:, None, None], jnp.arange(most)
    count = jnp.broadcast_to(count, extent.shape)[:, None, None]
    at = start[:, None, None] + jnp.arange(bins)[:, None] * step + (place + 0.5) * step / count
    inside = (place < count) & (at >= -1) & (at <= length)
    at = jnp.clip(jnp.where(inside, at, 0), 0, length - 1)
    low = jnp.floor(at)
    taps = [(low, 1 - at + low), (jnp.minimum(low + 1, length - 1), at - low)]
    flat = lambda x: x.reshape(len(start), bins * most)
    return [(flat(p).astype(int), flat(jnp.where(inside, w, 0))) for p, w in taps], count[:, 0, 0]


def region_means(sheets, batch, start, extent, bins, ratio, least):
    """[region, channel, *bins]: means of interpolated samples; ``sheets`` are [batch, channel,
    *bins or 1 and 1, height, width].
    """
    ys, county = samples(start[:, 1], extent[:, 1], bins[0], ratio, sheets.shape[4])
    xs, countx = samples(start[:, 0], extent[:, 0], bins[1], ratio, sheets.shape[5])
    each = [ys[0][0].shape[1] // bins[0], xs[0][0].shape[1] // bins[1]]
    row, column = (np.arange(b * e) // max(e, 1) for b, e in zip(bins, each, strict=True))
    row, column = row[:, None] % sheets.shape[2], column % sheets.shape[3]
    out = jnp.zeros((), sheets.dtype)
    for (y, v), (x, w) in itertools.product(ys, xs):
        elements = sheets[batch[:, None, None], :, row, column, y[:, :, None], x[:, None, :]]
        out = out + elements * (v[:, :, None] * w[:, None, :])[..., None]
    out = out.reshape(len(start), bins[0], each[0], bins[1], each[1], sheets.shape[1]).sum((2, 4))
    out = out / jnp.maximum(county * countx, least)[:, None, None, None]
    return jnp.moveaxis(out, -1, 1)


def windows(first, last, bins, length):
    """Places of each bin along one axis, as a mask: [region, bin, length]. The divisor is no
    constant and no scalar: XLA would multiply by its rounded inverse, and a bin's end may move.
    """
    number, place = jnp.arange(bins + 1), jnp.arange(length)
    step = jnp.maximum(last - first + 1, 1) / jnp.where(first == first, bins, np.nan)
    ends = number * step[:, None]
    low, high = jnp.floor(ends[:, :-1]) + first[:, None], jnp.ceil(ends[:, 1:]) + first[:, None]
    return (place >= low[..., None]) & (place < high[..., None])


def between(at, size):
    """The two (place, weight) around each coordinate; a place beyond the ends is -1."""
    low = jnp.floor(at)
    for place, weight in ((low, low + 1 - at), (low + 1, at - low)):
        yield jnp.where((place >= 0) & (place < size), place, -1).astype(int), weight


def deform_conv(x, weight, offset, mask, starts, strides, dilations, groups, offset_groups):
    """Convolves [N, C, height, width] in windows that ``offset`` shifts: a matmul over elements
    gathered at offsets (y, x), a pair for each place of the kernel, times ``mask`` or None.

    ``starts`` are the places of the first windows, minus the padding.
    """
    (batch, channels, *sizes), kernel, out = x.shape, weight.shape[2:], offset.shape[2:]
    rows, columns = (
        np.arange(k)[:, None] * d + start + np.arange(n) * s
        for k, n, start, s, d in zip(kernel, out, starts, strides, dilations)
    )
    offset = offset.reshape(batch, offset_groups, *kernel, 2, *out)
    y, z = offset[:, :, :, :, 0] + rows[:, None, :, None], offset[:, :, :, :, 1] + columns[:, None]
    flat = x.reshape(batch, offset_groups, channels // offset_groups, math.prod(sizes))
    line = batch, offset_groups, 1, math.prod(kernel) * math.prod(out)
    samples = jnp.zeros((), flat.dtype)
    for (i, v), (j, w) in itertools.product(between(y, sizes[0]), between(z, sizes[1])):
        place = jnp.where((i < 0) | (j < 0), flat.shape[-1], i * sizes[1] + j).reshape(line)
        value = jnp.take_along_axis(flat, place, -1, mode="fill", fill_value=0)
        samples += value * (v * w).reshape(line)
    samples = samples if mask is None else samples * mask.reshape(line)
    samples = samples.reshape(batch, groups, channels // groups, math.prod(kernel), math.prod(out))
    weight = weight.reshape(groups, -1, channels // groups, math.prod(kernel))
    out_channels = groups * weight.shape[1]
    return jnp.einsum("ngckp,gock->ngop", samples, weight).reshape(batch, out_channels, *out)
