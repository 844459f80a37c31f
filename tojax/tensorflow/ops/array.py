"""Shapes: making, joining and cutting arrays."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tojax.tensorflow.core import dtypes
from tojax.tensorflow.core.known import shape as sizes
from tojax.tensorflow.core.running import handles
from tojax.tensorflow.core.schema import Static, lowers, table


def _sizes_of(node, value) -> np.ndarray:
    """A shape as a known vector; with symbolic sizes its dtype is object."""
    fixed = all(isinstance(n, int) for n in value.shape)
    attr = node.proto.attr["out_type"].type if "out_type" in node.proto.attr else 3
    return np.array(value.shape, dtypes.to_numpy(attr) if fixed else object)


@handles("Shape")
def shape(run, node, inputs):
    return (_sizes_of(node, inputs[0]),)


@handles("ShapeN")
def shape_n(run, node, inputs):
    return tuple(_sizes_of(node, x) for x in inputs)


@handles("Size")
def size(run, node, inputs):
    return (np.asarray(np.prod(_sizes_of(node, inputs[0]), initial=1)),)


@handles("Rank")
def rank(run, node, inputs):
    return (np.asarray(inputs[0].ndim, np.int32),)


@lowers("Reshape")
def reshape(tensor, shape: Static):
    return jnp.reshape(tensor, sizes(shape))


@lowers("Squeeze")
def squeeze(input, squeeze_dims):
    return jnp.squeeze(input, tuple(squeeze_dims) or None)


@lowers("ExpandDims")
def expand_dims(input, axis: Static, /):
    return jnp.expand_dims(input, int(axis))


@lowers("Transpose")
def transpose(x, perm: Static):
    return jnp.transpose(x, sizes(perm))


@lowers("Pad")
def pad(input, paddings: Static):
    return jnp.pad(input, [tuple(map(int, pair)) for pair in paddings])


@lowers("ConcatV2")
def concat(values, axis: Static, /):
    return jnp.concatenate(values, int(axis))


table.update(
    {
        "Pack": lambda values, axis: jnp.stack(values, axis),
    }
)
