"""Shapes: what reads them, and what gives an array another one."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.onnx.core.schema import Known, Static, lowers
from anyjax.stablehlo.core.static_values import as_jax, sizes

SMALL = 64  # elements of a new array that stay known


@lowers("Shape")
def shape(data: Known, end, start):
    sizes = np.shape(data)[start:end]
    return np.array(sizes, np.int64 if all(isinstance(n, int) for n in sizes) else object)


@lowers("Size")
def size(data: Known):
    count = math.prod(np.shape(data))
    return np.asarray(count, np.int64 if isinstance(count, int) else object)


@lowers("Reshape")
def reshape(data, shape: Static, allowzero):
    return data.reshape(
        [data.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(sizes(shape))]
    )


@lowers("Flatten")
def flatten(input, axis):
    axis = axis + input.ndim if axis < 0 else axis
    return input.reshape(math.prod(input.shape[:axis]), math.prod(input.shape[axis:]))


@lowers("Squeeze")
def squeeze(data, axes: Static):
    return jnp.squeeze(data, None if axes is None else tuple(map(int, axes.ravel())))


@lowers("Unsqueeze")
def unsqueeze(data, axes: Static):
    return jnp.expand_dims(data, tuple(map(int, axes.ravel())))


@lowers("Expand")
def expand(input, shape: Static):
    """Sizes of 1 in the new shape leave those of the input."""
    return jnp.broadcast_to(input, jnp.broadcast_shapes(input.shape, sizes(shape)))


@lowers("Tile")
def tile(input, repeats: Static):
    return jnp.tile(input, sizes(repeats))


@lowers("Concat")
def concat(inputs, axis):
    return lax.concatenate(inputs, axis % inputs[0].ndim)


@lowers("Split")
def split(input, split: Static, axis, num_outputs):
    """Makes the last piece smaller where the pieces are not equal."""
    if split is None:
        total = input.shape[axis]
        step = math.ceil(total / num_outputs)
        split = [step] * (num_outputs - 1) + [total - step * (num_outputs - 1)]
    return tuple(lax.split(input, sizes(split), axis % input.ndim))


@lowers("Slice")
def slice_(data, starts: Static, ends: Static, axes: Static, steps: Static):
    axes = range(len(starts)) if axes is None else [int(a) % data.ndim for a in axes]
    index = [slice(None)] * data.ndim
    for i, axis in enumerate(axes):
        step = 1 if steps is None else int(steps[i])
        first, last = (n if not isinstance(n, np.integer) else int(n) for n in (starts[i], ends[i]))
        to_start = step < 0 and isinstance(last, int) and last < -data.shape[axis]
        index[axis] = slice(first, None if to_start else last, step)
    return data[tuple(index)]


@lowers("Transpose")
def transpose(data, perm):
    return jnp.transpose(data, perm)


@lowers("Pad")
def pad(data, pads: Static, constant_value, axes: Static, mode):
    axes = range(data.ndim) if axes is None else [int(a) % data.ndim for a in axes]
    pairs = [(0, 0)] * data.ndim
    for i, axis in enumerate(axes):
        pairs[axis] = (int(pads[i]), int(pads[len(axes) + i]))
    if mode == "constant":
        value = np.zeros((), data.dtype) if constant_value is None else constant_value
        value = jnp.asarray(value).astype(data.dtype).reshape(())
        return lax.pad(data, value, [(*pair, 0) for pair in pairs])
    cut = [slice(max(0, -low), n - max(0, -high)) for (low, high), n in zip(pairs, data.shape)]
    pairs = [(max(0, low), max(0, high)) for low, high in pairs]
    return jnp.pad(data[tuple(cut)], pairs, mode)


@lowers("Trilu")
def trilu(input, k: Static, upper):
    offset = 0 if k is None else int(k.reshape(()))
    return jnp.triu(input, offset) if upper else jnp.tril(input, offset)


# New arrays.


@lowers("ConstantOfShape")
def constant_of_shape(input: Static, value):
    """Small ones are known, as parts of shapes often are."""
    fill = np.zeros(1, np.float32) if value is None else value
    shape = sizes(input)
    if all(isinstance(n, int) for n in shape) and math.prod(shape) <= SMALL:
        return np.full(shape, fill.flat[0], fill.dtype)
    return jnp.full(shape, as_jax(fill.reshape(())))


@lowers("Range")
def range_(start: Static, limit: Static, delta: Static, stash_type):
    first, last, step = (x.reshape(()).item() for x in (start, limit, delta))
    count = max(0, math.ceil((last - first) / step))
    return as_jax((np.arange(count) * step + first).astype(start.dtype))


@lowers("EyeLike")
def eye_like(input, dtype, k):
    return jnp.eye(*input.shape, k=k, dtype=as_jax(np.zeros((), dtype or input.dtype)).dtype)


@lowers("OneHot")
def one_hot(indices, depth: Static, values, axis):
    """Counts negative indices from the end; those outside have the first value everywhere."""
    depth = int(depth.reshape(()))
    indices = (
        indices.astype(jnp.int32) if not jnp.issubdtype(indices.dtype, jnp.integer) else indices
    )
    indices = jnp.where(indices < 0, indices + depth, indices)
    places = jnp.expand_dims(indices, axis)
    axis %= places.ndim
    shape = [depth if i == axis else 1 for i in range(places.ndim)]
    numbers = jnp.arange(depth, dtype=places.dtype).reshape(shape)
    return jnp.where(places == numbers, values[1], values[0])


# Arrays whose sizes come from values.


@lowers("Compress")
def compress(input, condition: Static, axis):
    if axis is None:
        input, axis = input.ravel(), 0
    (places,) = np.nonzero(condition[: input.shape[axis]])
    return jnp.take(input, places, axis)


@lowers("NonZero")
def non_zero(X: Static):
    return as_jax(np.stack(np.nonzero(np.atleast_1d(X))).astype(np.int64))


@lowers("Unique")
def unique(X: Static, axis, sorted):
    values, first, inverse, counts = np.unique(
        X, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        values = np.take(values, order, axis or 0)
        inverse = np.argsort(order)[inverse]
        first, counts = first[order], counts[order]
    return tuple(as_jax(np.asarray(x)) for x in (values, first, inverse, counts))


@lowers("ReverseSequence")
def reverse_sequence(input, sequence_lens, batch_axis, time_axis):
    time = jnp.moveaxis(input, (batch_axis, time_axis), (0, 1))
    steps = jnp.arange(time.shape[1])[None]
    lengths = sequence_lens[:, None]
    places = jnp.where(steps < lengths, lengths - 1 - steps, steps)
    places = places.reshape(*places.shape, *[1] * (time.ndim - 2))
    reversed_ = jnp.take_along_axis(time, places, 1)
    return jnp.moveaxis(reversed_, (0, 1), (batch_axis, time_axis))
