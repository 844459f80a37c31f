"""A folder that reproduces a fault of a TensorFlow node: both sides, inputs, a script."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from anyjax.compare.judge import Comparison
from anyjax.compare.sides.tensorflow_side import GraphSide, TensorFlowSide
from anyjax.errors import Unsupported
from anyjax.parity.reproduce.scripts import NODE, SCRIPT
from anyjax.saved.folder import whole
from anyjax.tensorflow.core import text
from anyjax.tensorflow.core.nodes import Node
from anyjax.trees import is_array
from anyjax.typing import PyTree


def reproduce(
    folder: str | os.PathLike[str], side: TensorFlowSide, model_side: GraphSide, fault: Comparison
) -> str:
    """Writes the node at fault as a graph of its own; returns its name.

    Raises:
      Unsupported: the node reads a variable, so that its values are what differs.
    """
    name = fault.path.partition("#")[0]
    reference, converted = side.node(name), model_side.node(name)
    inputs = side.inputs_of(name)
    if reference is None or converted is None or not all(map(is_array, inputs)):
        raise Unsupported(
            f"a folder that reproduces {name or 'the result'}",
            why="a variable's value differs, or the result as a whole, and no node that computes",
            do="compare model.params and model.state with the variables",
        )
    floats = {f"x{i}": x for i, x in enumerate(inputs) if np.asarray(x).dtype.kind not in "iub"}
    with whole(folder, SCRIPT) as scratch:
        for file, node, functions in (
            ("reference.pb", reference, side.concrete.library),
            ("converted.pb", converted, model_side.concrete.library),
        ):
            graph = _graph(node, inputs)
            graph.library.function.extend(functions.protos.values())
            (scratch / file).write_bytes(graph.SerializeToString())
        np.savez(scratch / "inputs.npz", **floats)
        (scratch / SCRIPT).write_text(NODE.format(title=f"{name}: {fault.fault}"))
    return name


def _graph(node: Node, inputs: Sequence[PyTree]) -> tf.compat.v1.GraphDef:
    """Returns a node as a graph; floating-point inputs are arguments, others constants."""
    graph = tf.compat.v1.GraphDef()
    copy = graph.node.add()
    copy.CopyFrom(node.proto)
    copy.ClearField("input")
    copy.attr.pop("_class", None)
    for i, (value, kind) in enumerate(zip(inputs, text.types(node.proto, "input_arg"))):
        copy.input.append(f"x{i}")
        value = np.asarray(value)
        if value.dtype.kind in "iub":
            constant = graph.node.add(name=f"x{i}", op="Const")
            constant.attr["dtype"].type = kind
            constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.as_dtype(kind)))
        else:
            placeholder = graph.node.add(name=f"x{i}", op="Placeholder")
            placeholder.attr["dtype"].type = kind
            placeholder.attr["shape"].shape.CopyFrom(tf.TensorShape(value.shape).as_proto())
    return graph
