"""Shapes as values, and reshaping, joining, splitting, padding, reversing and slicing arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.stablehlo.core.static_values import as_jax, fixed, is_known, known, sizes
from anyjax.tensorflow.core import dtypes
from anyjax.tensorflow.core.nodes import Node
from anyjax.tensorflow.core.running import handles
from anyjax.tensorflow.core.schema import Entries, Known, Static, lowers, table

# Shapes as values.


def _out_type(node) -> np.dtype:
    return dtypes.to_numpy(node.proto.attr["out_type"].type or 3)


def _sizes_of(node, value) -> np.ndarray:
    """Returns a shape as a known vector, whose dtype is object if sizes are symbolic."""
    fixed = all(isinstance(n, int) for n in value.shape)
    return np.array(value.shape, _out_type(node) if fixed else object)


@handles("Shape")
def shape(run, node, inputs):
    return (_sizes_of(node, inputs[0]),)


@handles("ShapeN")
def shape_n(run, node, inputs):
    return tuple(_sizes_of(node, x) for x in inputs)


@handles("Size")
def size(run, node, inputs):
    shape = _sizes_of(node, inputs[0])
    return (np.asarray(np.prod(shape, dtype=shape.dtype, initial=1)),)


@handles("Rank")
def rank(run, node, inputs):
    return (np.asarray(inputs[0].ndim, np.int32),)


@lowers("BroadcastArgs")
def broadcast_args(s0: Static, s1: Static):
    return np.asarray(lax.broadcast_shapes(sizes(s0), sizes(s1)))


@lowers("BroadcastGradientArgs")
def broadcast_gradient_args(s0: Static, s1: Static):
    """Returns the axes that each of two gradients has to be summed over."""
    rank = max(len(s0), len(s1))
    shapes = ([1] * (rank - len(s)) + list(s) for s in (s0, s1))
    return tuple(np.array([i for i in range(rank) if s[i] == 1], np.int32) for s in shapes)


@lowers("ConcatOffset")
def concat_offset(axis: Static, shapes: Known, /):
    """Returns where each array begins in the joined one."""
    begins = np.zeros((len(shapes), len(shapes[0])), np.result_type(*shapes))
    begins[1:, axis.item()] = np.cumsum([s[axis.item()] for s in shapes[:-1]])
    return list(begins)


@lowers("DataFormatDimMap")
def data_format_dim_map(x, src_format, dst_format):
    """Returns the axis that each axis becomes."""
    return jnp.array([dst_format.index(name) for name in src_format], x.dtype)[x]


@lowers("DataFormatVecPermute")
def data_format_vec_permute(x, src_format, dst_format):
    """Sizes, strides or pads in the other order; two of them are those of height and width."""
    if len(x) == len(src_format) - 2:
        src_format, dst_format = (
            f.replace("N", "").replace("C", "") for f in (src_format, dst_format)
        )
    return x[np.array([src_format.index(name) for name in dst_format])]


# Reshaping and transposing.


@lowers("Reshape")
def reshape(tensor, shape: Static):
    return jnp.reshape(tensor, sizes(shape))


@lowers("Squeeze")
def squeeze(input, squeeze_dims):
    return jnp.squeeze(input, tuple(squeeze_dims) or None)


@lowers("ExpandDims")
def expand_dims(input, axis: Static, /):
    return jnp.expand_dims(input, axis.item())


@lowers("Transpose")
def transpose(x, perm: Static):
    return jnp.transpose(x, sizes(perm))


@lowers("ConjugateTranspose")
def conjugate_transpose(x, perm: Static):
    return jnp.conj(jnp.transpose(x, sizes(perm)))


@lowers("BroadcastTo")
def broadcast_to(input, shape: Static):
    return jnp.broadcast_to(input, sizes(shape))


@lowers("Tile")
def tile(input, multiples: Static):
    return jnp.tile(input, sizes(multiples))


# Joining and splitting.


@lowers("ConcatV2")
def concat(values, axis: Static, /):
    return lax.concatenate(values, axis.item() % values[0].ndim)


@lowers("Concat")
def concat_v1(axis: Static, values, /):
    return concat(values, axis)


table.update(
    {"Pack": jnp.stack, "ParallelConcat": lambda values, shape: lax.concatenate(values, 0)}
)


@lowers("Unpack")
def unpack(value, num, axis):
    axis %= value.ndim
    return [lax.squeeze(x, (axis,)) for x in lax.split(value, [1] * num, axis)] if num else []


@lowers("Split")
def split(axis: Static, value, num_split, /):
    axis = axis.item() % value.ndim
    return lax.split(value, [value.shape[axis] // num_split] * num_split, axis)


@lowers("SplitV")
def split_v(value, size_splits: Static, axis: Static, num_split, /):
    """One size may be -1: the remaining elements."""
    axis = axis.item() % value.ndim
    rest = value.shape[axis] - sum(n for n in size_splits if n >= 0)
    return lax.split(value, [n if n >= 0 else rest for n in sizes(size_splits)], axis)


# Padding.


MODES = {"REFLECT": "reflect", "SYMMETRIC": "symmetric"}


@lowers("Pad")
def pad(input, paddings: Static):
    return pad_v2(input, paddings, np.zeros((), input.dtype))


@lowers("PadV2")
def pad_v2(input, paddings: Static, constant_values):
    """TensorFlow has no gradient for the constant."""
    widths = [(*sizes(pair), 0) for pair in paddings]
    return lax.pad(input, fixed(constant_values), widths)


@lowers("MirrorPad")
def mirror_pad(input, paddings: Static, mode):
    return jnp.pad(input, [sizes(pair) for pair in paddings], MODES[mode])


@lowers("MirrorPadGrad")
def mirror_pad_grad(input, paddings: Static, mode):
    shape = [n - sum(pair) for n, pair in zip(input.shape, map(sizes, paddings))]
    padded = lambda x: mirror_pad(x, paddings, mode)
    return jax.linear_transpose(padded, jax.ShapeDtypeStruct(shape, input.dtype))(input)[0]


# Reversing and rolling.


@lowers("ReverseV2")
def reverse(tensor, axis: Static):
    return lax.rev(tensor, [int(i) % tensor.ndim for i in axis])


@lowers("Reverse")
def reverse_v1(tensor, dims: Static):
    return lax.rev(tensor, np.flatnonzero(dims).tolist())


@lowers("Roll")
def roll(input, shift: Known, axis: Static):
    axes = sizes(np.ravel(axis))
    shift = sizes(np.ravel(shift)) if is_known(shift) else jnp.ravel(shift)
    return jnp.roll(input, shift, axes)


@lowers("ReverseSequence")
def reverse_sequence(input, seq_lengths, seq_dim, batch_dim):
    """Reverses as many first elements of each row as ``seq_lengths`` says."""
    rank = input.ndim
    lengths = lax.expand_dims(seq_lengths, [i for i in range(rank) if i != batch_dim % rank])
    place = lax.broadcasted_iota(
        lengths.dtype, [n if i == seq_dim else 1 for i, n in enumerate(input.shape)], seq_dim
    )
    source = jnp.where(place < lengths, lengths - 1 - place, place)
    return jnp.take_along_axis(input, source, seq_dim, mode="promise_in_bounds")


# Slices.


@lowers("Slice")
def slice_(input, begin: Entries, size: Static):
    """A size of -1 takes the rest of the axis."""
    size = sizes(size)
    if any(isinstance(n, int) and n < 0 for n in size):
        size = [input.shape[i] - _entry(begin, i) if n == -1 else n for i, n in enumerate(size)]
    if all(is_known(begin[i]) for i in range(input.ndim)):
        begin = sizes(begin)
        return lax.slice(input, begin, [b + n for b, n in zip(begin, size)])
    begin = [as_jax(begin[i]) for i in range(input.ndim)]
    return lax.dynamic_slice(input, begin, size, allow_negative_indices=False)


def index_of(begin, end, strides, masks) -> tuple:
    """Returns the Python index that the inputs of a StridedSlice stand for."""
    begin_mask, end_mask, ellipsis, new_axis, shrink = masks
    index: list[Any] = []
    for i in range(len(begin)):
        bit = 1 << i
        if ellipsis & bit:
            index.append(Ellipsis)
        elif new_axis & bit:
            index.append(None)
        elif shrink & bit:
            index.append(_entry(begin, i) if is_known(begin[i]) else begin[i])
        else:
            first = None if begin_mask & bit else _entry(begin, i)
            last = None if end_mask & bit else _entry(end, i)
            index.append(slice(first, last, _entry(strides, i)))
    return tuple(index)


def index_of_node(node: Node, begin, end, strides) -> tuple:
    """Returns the index that a node stands for, by its masks."""
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    return index_of(begin, end, strides, [node.attr(f"{x}_mask") or 0 for x in names])


def _entry(values, i: int) -> Any:
    return known(values[i], "where a slice begins and ends").item()


@lowers("StridedSlice")
def strided_slice(input, begin: Entries, end: Entries, strides: Entries, *masks):
    return input[index_of(begin, end, strides, masks)]


@lowers("StridedSliceGrad")
def strided_slice_grad(shape: Static, begin: Entries, end: Entries, strides: Entries, dy, *masks):
    cut = lambda x: x[index_of(begin, end, strides, masks)]
    return jax.linear_transpose(cut, jax.ShapeDtypeStruct(sizes(shape), dy.dtype))(dy)[0]


@lowers("TensorStridedSliceUpdate")
def strided_slice_update(input, begin: Entries, end: Entries, strides: Entries, value, *masks):
    return input.at[index_of(begin, end, strides, masks)].set(value)


# Rows put together from arrays, and distributed to arrays, by numbers.


@lowers("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(indices: Known, data: Known):
    """A row without an index is 0; of several rows with the same index the last one counts."""
    indices = [known(x, "indices of DynamicStitch") for x in indices]
    rows = [jnp.reshape(as_jax(x), (i.size, *x.shape[i.ndim :])) for i, x in zip(indices, data)]
    rows, at = jnp.concatenate(rows), np.concatenate([np.ravel(i) for i in indices])
    count = int(at.max(initial=-1)) + 1
    last = np.full(count, -1)
    last[at] = np.arange(len(at))
    out = rows[np.maximum(last, 0)] if len(at) else rows
    holes = np.reshape(last < 0, (-1, *[1] * (out.ndim - 1)))
    return jnp.where(holes, 0, out).astype(out.dtype) if holes.any() else out


@lowers("DynamicPartition")
def dynamic_partition(data, partitions: Static, num_partitions):
    rows = jnp.reshape(data, (-1, *data.shape[partitions.ndim :]))
    return [rows[np.flatnonzero(partitions == i)] for i in range(num_partitions)]
