"""ONNX's own functions: bodies of operators that have no row, for the types of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper

from anyjax.onnx.core.nodes import Graph, Node
from anyjax.onnx.core.schema import read
from anyjax.onnx.engine import missing
from anyjax.onnx.engine.graph import Reader
from anyjax.table import REQUIRED
from anyjax.typing import PyTree


def body(node: Node, inputs: Sequence[PyTree]) -> Graph:
    """Returns the body of the function that ONNX has for an operator."""
    types = repr([*map(_type, inputs)])
    if (graph := node.cache.get(types)) is None:
        graph = node.cache[types] = _read(node, [*map(_type, inputs)])
        missing.refuse(graph)
    return graph


def _read(node: Node, types: Sequence[bytes]) -> Graph:
    schema: Any = defs.get_schema(node.op.name, node.op.version, node.op.domain)
    if schema.has_function:
        proto = schema.function_body
    else:
        text = schema.get_context_dependent_function(node.proto.SerializeToString(), [*types])
        proto = onnx.FunctionProto.FromString(text)
    opsets = {x.domain: x.version for x in proto.opset_import}
    params = {p.name: p.default for p in read(node.op).params if p.kind not in ("array", "arrays")}
    names = {x.name for x in node.proto.attribute}
    attributes = [*node.proto.attribute]
    attributes += [
        schema.attributes[k].default_value
        for k, v in params.items()
        if k not in names and v is not REQUIRED and schema.attributes[k].default_value.name
    ]
    opset = defs.onnx_opset_version() if node.op.domain else node.op.version
    return Reader({"": opset, **opsets}).function(proto, attributes)


def _type(value: PyTree) -> bytes:
    """Returns the type of a value as ONNX writes it."""
    if value is None:
        return b""
    if isinstance(value, list):
        element = onnx.TypeProto.FromString(_type(value[0])) if value else onnx.TypeProto()
        return helper.make_sequence_type_proto(element).SerializeToString()
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    sizes = [n if isinstance(n, int) else None for n in np.shape(value)]
    return helper.make_tensor_type_proto(dtype, sizes).SerializeToString()
