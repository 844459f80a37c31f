"""Shapes: asking for them, changing them, joining and splitting arrays."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core import dtypes
from tojax.tensorflow.core.known import shape as sizes
from tojax.tensorflow.core.running import handles
from tojax.tensorflow.core.schema import Static, lowers, table


def _out_type(node) -> np.dtype:
    return dtypes.to_numpy(node.proto.attr["out_type"].type or 3)


def _sizes_of(node, value) -> np.ndarray:
    """A shape as a known vector; with symbolic sizes its dtype is object."""
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
    found = _sizes_of(node, inputs[0])
    return (np.asarray(np.prod(found, dtype=found.dtype, initial=1)),)


@handles("Rank")
def rank(run, node, inputs):
    return (np.asarray(inputs[0].ndim, np.int32),)


@lowers("BroadcastArgs")
def broadcast_args(s0: Static, s1: Static):
    return np.asarray(lax.broadcast_shapes(sizes(s0), sizes(s1)))


@lowers("BroadcastGradientArgs")
def broadcast_gradient_args(s0: Static, s1: Static):
    """The axes that each of two gradients has to be summed over."""
    rank = max(len(s0), len(s1))
    one, other = ([1] * (rank - len(s)) + list(s) for s in (s0, s1))
    pick = lambda a: np.array([i for i in range(rank) if a[i] == 1], np.int32)
    return pick(one), pick(other)


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


@lowers("ConcatV2")
def concat(values, axis: Static, /):
    return lax.concatenate(values, axis.item() % values[0].ndim)


@lowers("Concat")
def concat_v1(axis: Static, values, /):
    return concat(values, axis)


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
    """One size may be -1: what the others leave."""
    axis = axis.item() % value.ndim
    rest = value.shape[axis] - sum(n for n in size_splits if n >= 0)
    return lax.split(value, [n if n >= 0 else rest for n in sizes(size_splits)], axis)


table.update(
    {
        "Pack": jnp.stack,
        "ParallelConcat": lambda values, shape: lax.concatenate(values, 0),
        "OnesLike": jnp.ones_like,
        "ZerosLike": jnp.zeros_like,
    }
)
