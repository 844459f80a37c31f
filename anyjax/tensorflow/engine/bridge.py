"""Operators without a row go through TensorFlow's bridge to XLA, and its StableHLO through ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from anyjax.errors import MissingOps
from anyjax.stablehlo.core.static_values import is_known
from anyjax.stablehlo.engine.evaluate import Run
from anyjax.stablehlo.engine.parse import parse
from anyjax.tensorflow.core import text
from anyjax.tensorflow.core.nodes import Node
from anyjax.tensorflow.core.schema import read, sizes, stateful


def through(node: Node, inputs: Sequence[Any]) -> tuple:
    """Computes one node by the StableHLO that TensorFlow's bridge makes of it.

    Raises:
      MissingOps: the bridge does not know the operator either.
    """
    text.refuse_text(node)
    if stateful(node.op):
        raise missing(node, "it keeps a state that XLA does not have")
    traced = [x for x in inputs if not is_known(x)]
    shapes = tuple((tuple(x.shape), str(x.dtype)) for x in traced)
    constants = tuple((i, x.tobytes(), x.shape) for i, x in enumerate(inputs) if is_known(x))
    key = ("bridge", shapes, constants)
    if key not in node.cache:
        node.cache[key] = Run(parse(stablehlo(node, inputs)))
    return tuple(node.cache[key].function("main", traced))


def stablehlo(node: Node, inputs: Sequence[Any]) -> str:
    """Returns the node as a module whose arguments are its traced inputs."""
    graph = tf.compat.v1.GraphDef()
    copy = graph.node.add()
    copy.CopyFrom(node.proto)
    copy.name = "node"
    copy.ClearField("input")
    copy.attr.pop("_class", None)
    specs = []
    for i, (value, kind) in enumerate(zip(inputs, text.types(node.proto, "input_arg"))):
        copy.input.append(f"x{i}")
        if is_known(value):
            constant = graph.node.add(name=f"x{i}", op="Const")
            constant.attr["dtype"].type = kind
            tensor = tf.make_tensor_proto(value, dtype=tf.as_dtype(kind))
            constant.attr["value"].tensor.CopyFrom(tensor)
        else:
            specs.append((f"x{i}:0", tf.TensorSpec(value.shape, tf.as_dtype(kind))))
    outputs = [f"node:{i}" for i in range(_count(node))]

    @tf.function(jit_compile=True, autograph=False)
    def single_node(*arguments):
        named = dict(zip((name for name, _ in specs), arguments))
        return tf.graph_util.import_graph_def(graph, named, outputs, name="")

    try:
        with tf.init_scope():
            module = single_node.experimental_get_compiler_ir(*(spec for _, spec in specs))
            return module(stage="stablehlo")
    except (tf.errors.OpError, ValueError, TypeError) as error:
        raise missing(node, " ".join(str(error).split())[:300]) from error


def missing(node: Node, why: str) -> MissingOps:
    """Returns the error for an operator that nothing serves, with a stub for a lowering."""
    row = read(node.op)
    return MissingOps(
        f"{node.op} has no lowering",
        ops=(node.op,),
        why=why,
        do=f"add one: @anyjax.tensorflow.lowers({node.op!r}) def lowering({', '.join(row.kept)})",
    )


def _count(node: Node) -> int:
    """Counts the outputs of a node."""
    return sum(1 if n is None else n for n in sizes(node.op, node.proto.attr))
