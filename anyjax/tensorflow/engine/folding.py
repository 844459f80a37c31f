"""Constant folding: operators with known inputs are computed while tracing, so shapes stay known.

TensorFlow's own kernels compute them, strings and tables included; numpy is faster for the few
operators of shapes, and also serves symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from anyjax.errors import Unsupported
from anyjax.stablehlo.core.static_values import is_known
from anyjax.tensorflow.core import dtypes, text
from anyjax.tensorflow.core.nodes import Node
from anyjax.tensorflow.core.private import NotOk, eager_context, execute
from anyjax.tensorflow.core.schema import read, stateful, table
from anyjax.tensorflow.ops.shape import index_of_node

LARGE = 1 << 16  # elements; larger ones are computed by the program, not stored in it
SMALL = 64
NUMPY: dict[str, Callable] = {
    "Identity": lambda node, x: x,
    "StopGradient": lambda node, x: x,
    "Pack": lambda node, *xs: np.stack(xs, node.attr("axis") or 0),
    "ConcatV2": lambda node, *xs: np.concatenate(xs[:-1], int(xs[-1])),
    "Add": lambda node, x, y: np.add(x, y),
    "AddV2": lambda node, x, y: np.add(x, y),
    "Sub": lambda node, x, y: np.subtract(x, y),
    "Mul": lambda node, x, y: np.multiply(x, y),
    "Neg": lambda node, x: np.negative(x),
    "Pow": lambda node, x, y: np.power(x, y),
    "Sum": lambda node, x, axes: np.sum(x, _axes(axes), keepdims=node.attr("keep_dims") or False),
    "FloorDiv": lambda node, x, y: np.floor_divide(x, y),
    "FloorMod": lambda node, x, y: np.mod(x, y),
    "Maximum": lambda node, x, y: np.maximum(x, y),
    "Minimum": lambda node, x, y: np.minimum(x, y),
    "Prod": lambda node, x, axes: np.prod(
        x, _axes(axes), dtype=x.dtype, keepdims=node.attr("keep_dims") or False
    ),
    "ExpandDims": lambda node, x, axis: np.expand_dims(x, int(axis)),
    "Squeeze": lambda node, x: np.squeeze(x, tuple(node.attr("squeeze_dims") or ()) or None),
    "Reshape": lambda node, x, shape: np.reshape(x, [int(n) for n in shape]),
    "GatherV2": lambda node, x, at, axis: np.take(x, at, int(axis)),
    "Cast": lambda node, x: x if x.dtype == object else x.astype(_wide(node, "DstT")),
    "StridedSlice": lambda node, x, *ends: x[index_of_node(node, *ends)],
    "Equal": lambda node, x, y: np.equal(x, y),
    "Less": lambda node, x, y: np.less(x, y),
    "Greater": lambda node, x, y: np.greater(x, y),
    "Empty": lambda node, shape: np.zeros([int(n) for n in shape], _wide(node, "dtype")),
    "LogicalAnd": lambda node, x, y: np.logical_and(x, y),
}


def fold(node: Node, inputs: Sequence[Any]) -> tuple | None:
    """Computes a node whose inputs are known; returns None if the program has to compute it."""
    if not all(map(is_known, inputs)) or not _pure(node):
        return None
    symbolic = [x for x in inputs if x.dtype == object and not _strings(x)]
    quick = None if symbolic and not _of_sizes(node) else NUMPY.get(node.op)
    few = all(x.dtype.kind in "iub" and x.size <= SMALL for x in inputs)
    if quick is not None and (symbolic or few):
        computed = np.asarray(quick(node, *inputs))
        return None if computed.size > LARGE else (computed,)
    if symbolic and table.find(node.op) is not None:
        return None
    if symbolic:
        raise Unsupported(
            f"{node.op} of symbolic sizes",
            why="its result cannot be told before the sizes are known",
            do="give this dimension a fixed size",
        )
    try:
        outputs = kernel(node, inputs)
    except NotOk as error:
        if error.code == tf.errors.NOT_FOUND:  # it has no kernel on a CPU
            return None
        raise
    return None if sum(x.size for x in outputs if is_known(x)) > LARGE else outputs


def _of_sizes(node: Node) -> bool:
    """Returns whether a node turns symbolic sizes into sizes again."""
    return node.op != "Empty" and (node.op != "Cast" or _wide(node, "DstT").kind in "iu")


def _pure(node: Node) -> bool:
    if node.op == "Empty":  # zeros here, uninitialised in TensorFlow
        return True
    return not stateful(node.op) and not node.op.startswith("Stateless") and bool(node.inputs)


def kernel(node: Node, inputs: Sequence[object]) -> tuple:
    """Computes a node by TensorFlow's kernel."""
    kinds = map(tf.as_dtype, text.types(node.proto, "input_arg"))
    groups = node.groups()
    attributes: list[Any] = []
    for param in read(node.op).params[len(groups) :]:
        if param.name in node.proto.attr:
            attributes += [param.name, _attr(node, param)]
    with tf.init_scope(), tf.device("CPU"):  # also where TensorFlow traces us
        tensors = iter([*map(_tensor, inputs, kinds)])
        operands = [next(tensors) if n is None else [*islice(tensors, n)] for n in groups]
        out = execute(eager_context(), node.op, None, *operands, *attributes)
    flat = tf.nest.flatten(out)
    return tuple(np.asarray(x.numpy(), object if x.dtype == tf.string else None) for x in flat)


def _tensor(value: Any, kind: tf.DType) -> tf.Tensor:
    """Widens a number that JAX narrowed to the node's dtype; a table stays."""
    if isinstance(value, tf.Tensor):
        return value
    number = value.dtype.kind in "iuf" and value.dtype.kind == np.dtype(kind.as_numpy_dtype).kind
    return tf.constant(value, kind) if number else tf.constant(value)


def _attr(node: Node, param: Any) -> Any:
    """Returns an attribute as TensorFlow takes it: dtypes as wide as the node's."""
    attr = node.proto.attr[param.name]
    if param.kind == "dtype":
        return attr.type
    if attr.list.type:
        return list(attr.list.type)
    return node.attr(param.name)


def _strings(value: np.ndarray) -> bool:
    return all(isinstance(x, (bytes, str)) for x in value.flat)


def _wide(node: Node, name: str) -> np.dtype:
    return dtypes.to_numpy(node.proto.attr[name].type)


def _axes(axes: np.ndarray) -> tuple[int, ...]:
    return tuple(int(a) for a in np.ravel(axes))
