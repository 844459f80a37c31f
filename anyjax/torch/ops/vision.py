"""torchvision's operators, by name: boxes, regions of interest, deformable convolution."""

import contextlib
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics.regions import deform_conv, region_means, windows
from anyjax.torch.core.schema import lowers
from anyjax.torch.ops._operands import default_int, wide
from anyjax.torch.ops.sort import sort


@lowers("torchvision.nms")
def nms(dets, scores, iou_threshold):
    """As many indices as boxes stay, so their values must be known."""
    if not len(dets):
        return jnp.zeros(0, default_int())
    order, stay = not_overlapped(dets, scores, iou_threshold)
    return order[stay].astype(default_int())


def not_overlapped(dets, scores, iou_threshold, count=None):
    """Returns (boxes by their score, whether no better one that stays overlaps each), of the first
    ``count`` of them. Where boxes have a fifth number, it is their class: those of others do not
    matter.
    """
    order = sort(lax.stop_gradient(scores), 0, True)[1]
    boxes = lax.stop_gradient(dets)[order]
    low, high, kind = boxes[:, :2], boxes[:, 2:4], boxes[:, 4:]
    area, rank = jnp.prod(high - low, 1), jnp.arange(len(boxes))
    limit = np.asarray(iou_threshold, boxes.dtype)  # torch compares with a double
    limit = np.nextafter(limit, -np.inf) if float(limit) > iou_threshold else limit

    def visit(i, stay):
        sides = jnp.maximum(jnp.minimum(high, high[i]) - jnp.maximum(low, low[i]), 0)
        shared = sides[:, 0] * sides[:, 1]
        alike = (kind == kind[i]).all(1) & (rank > i)
        return stay & ~(stay[i] & alike & (shared / (area[i] + area - shared) > limit))

    return order, lax.fori_loop(
        0, len(boxes) if count is None else count, visit, jnp.ones(len(boxes), bool)
    )


def regions(rois, spatial_scale, ratio=1):
    """(index in the batch, starts, ends), x before y; they have no gradient."""
    rois = lax.stop_gradient(wide(rois))
    rois = rois if ratio > 0 else np.asarray(rois)
    ends = rois[:, 1:] * spatial_scale
    return rois[:, 0].astype(int), ends[:, :2], ends[:, 2:]


@lowers("torchvision.roi_align")
def roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    batch, start, end = regions(rois, spatial_scale, sampling_ratio)
    start, end = start - 0.5 * aligned, end - 0.5 * aligned
    extent = end - start if aligned else (end - start).clip(1)
    sheets, bins = wide(input)[:, :, None, None], (pooled_height, pooled_width)
    out = region_means(sheets, batch, start, extent, bins, sampling_ratio, 1)
    return out.astype(input.dtype)


def per_bin(channels, regions, bins):
    """The channel that each result of a position-sensitive pooling reads, int32."""
    channel_of_bin = np.arange(channels, dtype=np.int32).reshape(-1, *bins)
    return jnp.broadcast_to(channel_of_bin, (regions, *channel_of_bin.shape))


@lowers("torchvision.ps_roi_align")
def ps_roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio):
    """Each bin has its own channels; a region without extent gives NaN."""
    batch, start, end = regions(rois, spatial_scale, sampling_ratio)
    start, end = start - 0.5, end - 0.5
    bins = pooled_height, pooled_width
    sheets = wide(input).reshape(len(input), -1, *bins, *input.shape[2:])
    out = region_means(sheets, batch, start, end - start, bins, sampling_ratio, -np.inf)
    return out.astype(input.dtype), per_bin(input.shape[1], len(rois), bins)


def windows_of(rois, spatial_scale, bins, sizes):
    """(index in the batch, rows of the bins, columns of the bins); of known regions worked out one
    operator at a time, for XLA folds what it knows.
    """
    is_static = not isinstance(rois, jax.core.Tracer)
    with jax.ensure_compile_time_eval() if is_static else contextlib.nullcontext():
        batch, *ends = regions(rois, spatial_scale)
        first, last = (lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO) for x in ends)
        along = [windows(first[:, 1 - i], last[:, 1 - i], bins[i], sizes[i]) for i in (0, 1)]
        return batch, *along


@lowers("torchvision.roi_pool")
def roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    """(maxima, their places or -1); an empty bin gives 0, NaN counts as nothing."""
    sizes, bins = input.shape[2:], (pooled_height, pooled_width)
    batch, rows, columns = windows_of(rois, spatial_scale, bins, sizes)
    lowest, values = np.finfo(np.float32).min, lax.stop_gradient(wide(input))
    values = jnp.where(values > lowest, values, lowest)

    def places(region):
        index, rows, columns = region
        x = jnp.where(columns[:, None], values[index, :, None], lowest)  # channel, bin, row, column
        best = jnp.where(rows[:, None], jnp.max(x, -1)[:, None], lowest)  # channel, bin, bin, row
        row = jnp.argmax(best, -1)
        column = jnp.take_along_axis(jnp.argmax(x, -1)[:, None], row[..., None], -1)[..., 0]
        return jnp.where(jnp.max(best, -1) > lowest, row * sizes[1] + column, -1)

    place = lax.map(places, (batch, rows, columns)).astype(np.int32)
    flat = input.reshape(*input.shape[:2], math.prod(sizes))
    channel = jnp.arange(input.shape[1])[:, None, None]
    out = flat[batch[:, None, None, None], channel, jnp.maximum(place, 0)]
    nonempty = jnp.any(rows, -1)[:, None, :, None] & jnp.any(columns, -1)[:, None, None, :]
    return jnp.where(place >= 0, out, jnp.where(nonempty, lowest, 0).astype(out.dtype)), place


@lowers("torchvision.deform_conv2d")
def deform_conv2d(
    input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
    groups, offset_groups, use_mask,
):  # fmt: skip
    result = deform_conv(
        wide(input),
        wide(weight),
        wide(offset),
        wide(mask) if use_mask else None,
        starts=(-pad_h, -pad_w),
        strides=(stride_h, stride_w),
        dilations=(dilation_h, dilation_w),
        groups=groups,
        offset_groups=offset_groups,
    )
    return (result + wide(bias)[:, None, None]).astype(input.dtype)
