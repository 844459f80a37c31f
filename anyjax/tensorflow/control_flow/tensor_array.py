"""TensorArrays of TensorFlow 1. Their ``flow``, there a scalar that orders reads and writes, is the
list itself here, so that loops carry it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from anyjax.errors import Unsupported
from anyjax.stablehlo.core.static_values import as_jax, is_known, known
from anyjax.tensorflow.control_flow import tensor_list
from anyjax.tensorflow.control_flow.tensor_list import TensorList
from anyjax.tensorflow.core import dtypes
from anyjax.tensorflow.core.running import handles


class Array(NamedTuple):
    """The handle of a TensorArray: its attributes."""

    grows: bool
    element: tuple | None


@handles("TensorArrayV3")
def create(run, node, inputs):
    element = node.attr("element_shape")
    count = int(known(inputs[0], "the size of a TensorArray"))
    flow = TensorList(None, count, element, dtypes.to_jax(node.proto.attr["dtype"].type))
    fixed = element is not None and None not in element
    return Array(bool(node.attr("dynamic_size")), element), flow.like(element) if fixed else flow


@handles("TensorArrayWriteV3")
def write(run, node, inputs):
    array, index, value, flow = inputs
    return (tensor_list.with_item(flow, index, value, array.grows, run.checks),)


@handles("TensorArrayReadV3")
def read(run, node, inputs):
    array, index, flow = inputs
    return (tensor_list.item(flow, index, array.element),)


@handles("TensorArrayGatherV3")
def gather(run, node, inputs):
    array, at, flow = inputs
    values = tensor_list.stacked(flow, node.attr("element_shape") or array.element)
    if is_known(at) and np.array_equal(at, np.arange(values.shape[0])):
        return (values,)
    return (jnp.take(values, as_jax(at), axis=0, mode="clip"),)


@handles("TensorArrayScatterV3")
def scatter(run, node, inputs):
    _, at, values, flow = inputs
    return (tensor_list.with_items(flow, values, at),)


@handles("TensorArraySizeV3")
def size(run, node, inputs):
    count = inputs[1].length
    return (np.asarray(count, np.int32) if isinstance(count, int) else count,)


@handles("TensorArraySplitV3")
def split(run, node, inputs):
    _, values, lengths, _ = inputs
    return (tensor_list.split_evenly(values, lengths),)


@handles("TensorArrayConcatV3")
def concat(run, node, inputs):
    array, flow = inputs
    rest = node.attr("element_shape_except0")
    return tensor_list.concatenated(flow, array.element or (rest and (None, *rest)))


@handles("TensorArrayCloseV3")
def close(run, node, inputs):
    return ()


@handles("TensorArrayGradV3", "TensorArrayGradWithShape")
def gradient(run: object, node: object, inputs: object) -> tuple:
    raise Unsupported(
        "a graph that holds the gradient of a TensorArray",
        why="tf.gradients wrote the derivative of a loop into the graph",
        do="convert the forward graph and differentiate it with jax.grad",
    )
