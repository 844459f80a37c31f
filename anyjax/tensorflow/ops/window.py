"""Windows: blocks of space to and from channels or batches, dilation, patches as channels."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import Unsupported
from anyjax.stablehlo.core.static_values import sizes
from anyjax.tensorflow.core.schema import Static, lowers
from anyjax.tensorflow.ops.shape import pad

# Blocks to and from channels or batches: reshape, transpose, reshape.


def _channels_last(function):
    """Makes a lowering of a function for NHWC; NCHW is moved there and back."""

    def body(input, block_size, data_format):
        if data_format == "NHWC":
            return function(input, block_size)
        if data_format == "NCHW":
            return jnp.moveaxis(function(jnp.moveaxis(input, 1, 3), block_size), 3, 1)
        raise Unsupported(
            f"the data format {data_format}",
            why="only TensorFlow's kernels for GPUs have it",
            do="use NHWC or NCHW",
        )

    return body


@lowers("SpaceToDepth")
@_channels_last
def space_to_depth(input, size):
    n, h, w, c = input.shape
    blocks = jnp.reshape(input, (n, h // size, size, w // size, size, c))
    return jnp.reshape(blocks.transpose(0, 1, 3, 2, 4, 5), (n, h // size, w // size, size**2 * c))


@lowers("DepthToSpace")
@_channels_last
def depth_to_space(input, size):
    n, h, w, c = input.shape
    blocks = jnp.reshape(input, (n, h, w, size, size, c // size**2))
    return jnp.reshape(blocks.transpose(0, 1, 3, 2, 4, 5), (n, h * size, w * size, c // size**2))


@lowers("SpaceToBatchND")
def space_to_batch_nd(input, block_shape: Static, paddings: Static):
    block, count = sizes(block_shape), len(block_shape)
    zero = np.zeros((1, 2), np.int64)
    rest = np.repeat(zero, input.ndim - 1 - count, 0)
    padded = pad(input, np.concatenate([zero, np.reshape(paddings, (-1, 2)), rest]))
    n, *space = padded.shape[: count + 1]
    rest = padded.shape[count + 1 :]
    cells = [m // b for m, b in zip(space, block)]
    pairs = [x for pair in zip(cells, block) for x in pair]
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2)]
    order += range(2 * count + 1, 2 * count + 1 + len(rest))
    moved = jnp.transpose(jnp.reshape(padded, (n, *pairs, *rest)), order)
    return jnp.reshape(moved, (n * math.prod(block), *cells, *rest))


@lowers("BatchToSpaceND")
def batch_to_space_nd(input, block_shape: Static, crops: Static):
    block, count = sizes(block_shape), len(block_shape)
    n, rest = input.shape[0] // math.prod(block), input.shape[count + 1 :]
    cells = input.shape[1 : count + 1]
    order = [count, *(x for i in range(count) for x in (count + 1 + i, i))]
    order += range(2 * count + 1, 2 * count + 1 + len(rest))
    moved = jnp.transpose(jnp.reshape(input, (*block, n, *cells, *rest)), order)
    padded = jnp.reshape(moved, (n, *(m * b for m, b in zip(cells, block)), *rest))
    cut = [(0, 0), *map(sizes, np.reshape(crops, (-1, 2))), *[(0, 0)] * len(rest)]
    return lax.pad(padded, np.zeros((), padded.dtype), [(-a, -b, 0) for a, b in cut])


@lowers("SpaceToBatch")
def space_to_batch(input, paddings: Static, block_size):
    return space_to_batch_nd(input, np.array([block_size] * 2), paddings)


@lowers("BatchToSpace")
def batch_to_space(input, crops: Static, block_size):
    return batch_to_space_nd(input, np.array([block_size] * 2), crops)


# Grayscale dilation: the maximum of the sums of a window and a filter.


def lowest(dtype):
    info = jnp.finfo if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo
    return info(dtype).min


@lowers("Dilation2D")
def dilation2d(input, filter, strides, rates, padding):
    """One element of the filter after another; the first of equal sums has the gradient."""
    height, width, _ = filter.shape
    strides, rates = strides[1:3], rates[1:3]
    least = jnp.asarray(lowest(input.dtype), input.dtype)
    input, extents = _padded(input, (height, width), strides, rates, padding, least)
    ends = [(n - e) // s * s + 1 for n, e, s in zip(input.shape[1:3], extents, strides)]
    out = None
    for y, x in itertools.product(range(height), range(width)):
        at = y * rates[0], x * rates[1]
        sums = input[:, at[0] : at[0] + ends[0] : strides[0], at[1] : at[1] + ends[1] : strides[1]]
        # padding stays the lowest value, whatever the filter adds
        sums = jnp.where(sums == least, least, sums + filter[y, x])
        out = sums if out is None else jnp.where(sums > out, sums, out)
    return out


@lowers("Dilation2DBackpropInput")
def of_input(input, filter, out_backprop, /, *how):
    return jax.vjp(lambda x: dilation2d(x, filter, *how), input)[1](out_backprop)[0]


@lowers("Dilation2DBackpropFilter")
def of_filter(input, filter, out_backprop, /, *how):
    return jax.vjp(lambda x: dilation2d(input, x, *how), filter)[1](out_backprop)[0]


# Patches of an image or a volume as channels.


@lowers("ExtractImagePatches")
def image_patches(images, ksizes, strides, rates, padding):
    return windows(images, ksizes[1:-1], strides[1:-1], rates[1:-1], padding)


@lowers("ExtractVolumePatches")
def volume_patches(input, ksizes, strides, padding):
    return windows(input, ksizes[1:-1], strides[1:-1], [1] * 3, padding)


def windows(x, lengths, strides, rates, padding):
    """Returns [n, *space, c] as [n, *places, product(lengths) * c], by copies alone."""
    x, extents = _padded(x, lengths, strides, rates, padding, np.zeros((), x.dtype))
    counts = [(n - e) // s + 1 for n, e, s in zip(x.shape[1:-1], extents, strides)]
    for i, (count, length) in enumerate(zip(counts, lengths)):
        starts = np.arange(count, dtype=np.int32) * strides[i]
        at = starts[:, None] + np.arange(length, dtype=np.int32) * rates[i]
        axis = 1 + 2 * i
        if strides[i] == length and rates[i] == 1:
            x = lax.slice_in_dim(x, 0, count * length, axis=axis)
            x = jnp.reshape(x, (*x.shape[:axis], count, length, *x.shape[axis + 1 :]))
        else:
            x = x.at[(*[slice(None)] * axis, at)].get(mode="promise_in_bounds")
    space = range(1, 2 * len(lengths) + 1)
    x = jnp.transpose(x, (0, *space[::2], *space[1::2], x.ndim - 1))
    return jnp.reshape(x, (x.shape[0], *counts, np.prod(lengths) * x.shape[-1]))


def _padded(x, lengths, strides, rates, padding, value):
    """Returns the padded array and how many elements each window spans in each dimension."""
    extents = [(k - 1) * r + 1 for k, r in zip(lengths, rates)]
    pads = lax.padtype_to_pads(x.shape[1:-1], extents, strides, padding)
    return lax.pad(x, value, [(0, 0, 0), *((*p, 0) for p in pads), (0, 0, 0)]), extents
