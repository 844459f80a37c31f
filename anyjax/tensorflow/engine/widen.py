"""Graphs in 64 bits: every floating-point dtype and constant of their nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from anyjax.tensorflow.core.nodes import Graph, Node
from anyjax.tensorflow.engine.concrete import Concrete
from anyjax.tensorflow.engine.graph import Library

WIDE = {
    narrow.as_datatype_enum: wide.as_datatype_enum
    for narrow, wide in (
        (tf.float32, tf.float64),
        (tf.float16, tf.float64),
        (tf.bfloat16, tf.float64),
        (tf.complex64, tf.complex128),
    )
}


class WideLibrary(Library):
    """The functions of a graph in 64 bits."""

    def __init__(self, library: Library):
        self.__dict__.update(library.__dict__)
        self._wide: dict[Any, Graph] = {}

    def __getitem__(self, name: str | Graph) -> Graph:
        if name not in self._wide:
            self._wide[name] = widened_graph(super().__getitem__(name))
        return self._wide[name]


def widened(concrete: Concrete) -> Concrete:
    """Returns a function that computes in 64 bits and takes such arguments."""
    wide_spec = lambda x: tf.TensorSpec(
        x.shape, tf.as_dtype(_wide(x.dtype.as_datatype_enum)), x.name
    )
    is_float = lambda x: isinstance(x, np.ndarray) and x.dtype.kind in "fVc"
    return replace(
        concrete,
        graph=widened_graph(concrete.graph),
        library=WideLibrary(concrete.library),
        specs=[*map(wide_spec, concrete.specs)],
        captured=[_wide_array(x) if is_float(x) else x for x in concrete.captured],
    )


def widened_graph(graph: Graph) -> Graph:
    """Returns a graph with wide nodes."""
    return replace(graph, nodes=[*map(_widened_node, graph.nodes)], pruned={}, exits=None)


def _widened_node(node: Node) -> Node:
    proto = type(node.proto)()
    proto.CopyFrom(node.proto)
    for attr in proto.attr.values():
        match attr.WhichOneof("value"):
            case "type":
                attr.type = _wide(attr.type)
            case "tensor" if attr.tensor.dtype in WIDE:
                values = _wide_array(tf.make_ndarray(attr.tensor))
                attr.tensor.CopyFrom(tf.make_tensor_proto(values))
            case "list" if attr.list.type:
                attr.list.type[:] = map(_wide, attr.list.type)
    structure = {k: v for k, v in node.cache.items() if k == "gradient" or isinstance(v, Graph)}
    return replace(node, proto=proto, cache=structure)


def _wide(kind: int) -> int:
    return WIDE.get(kind, kind)


def _wide_array(values: np.ndarray) -> np.ndarray:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
