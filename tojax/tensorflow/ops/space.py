"""Blocks of space to and from channels or batches: reshape, transpose, reshape."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.errors import Unsupported
from tojax.tensorflow.core.known import shape as sizes
from tojax.tensorflow.core.schema import Static, lowers
from tojax.tensorflow.ops.pad import pad


def _channels_last(function):
    """A lowering's body for NHWC; NCHW is moved there and back."""

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
    whole = jnp.reshape(moved, (n, *(m * b for m, b in zip(cells, block)), *rest))
    cut = [(0, 0), *map(sizes, np.reshape(crops, (-1, 2))), *[(0, 0)] * len(rest)]
    return lax.pad(whole, np.zeros((), whole.dtype), [(-a, -b, 0) for a, b in cut])


@lowers("SpaceToBatch")
def space_to_batch(input, paddings: Static, block_size):
    return space_to_batch_nd(input, np.array([block_size] * 2), paddings)


@lowers("BatchToSpace")
def batch_to_space(input, crops: Static, block_size):
    return batch_to_space_nd(input, np.array([block_size] * 2), crops)
