"""Protos -> Graph, with the functions that nodes call."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import onnx
from onnx import AttributeProto, helper

from anyjax.errors import BadCheckpoint, WrongArguments
from anyjax.onnx.core.nodes import Graph, Node
from anyjax.onnx.core.schema import Op, op_of, plain
from anyjax.onnx.engine.values import array_of, constant, dense

DEPTH = 100  # of functions that call each other
Bindings = Mapping[str, AttributeProto]
NO_BINDINGS: Bindings = {}


class Reader:
    """Reads graphs; ``opsets`` are the versions by domain, ``functions`` the model's own."""

    def __init__(self, opsets: Mapping[str, int], functions: Iterable[onnx.FunctionProto] = ()):
        self.opsets = {"" if k == "ai.onnx" else k: v for k, v in opsets.items()}
        self.functions = {(f.domain, f.name, f.overload): f for f in functions}
        self.depth = 0

    def graph(self, proto: onnx.GraphProto, bindings: Bindings = NO_BINDINGS) -> Graph:
        """Reads a graph; ``bindings`` are the attributes of the function around it."""
        constants = {x.name: array_of(x) for x in proto.initializer}
        constants |= {x.values.name: dense(x) for x in proto.sparse_initializer}
        inputs = tuple(x.name for x in proto.input if x.name not in constants)
        outputs = tuple(x.name for x in proto.output)
        graph = Graph(proto.name, inputs, outputs, [], constants)
        self._read_nodes(graph, proto.node, bindings)
        return graph

    def function(self, proto: onnx.FunctionProto, attributes: Iterable[AttributeProto]) -> Graph:
        """Reads the body of a function for the attributes of a node that calls it."""
        bindings = {x.name: x for x in (*proto.attribute_proto, *attributes)}
        graph = Graph(proto.name, tuple(proto.input), tuple(proto.output), [])
        opsets = {**self.opsets, **{x.domain: x.version for x in proto.opset_import}}
        reader = Reader(opsets, self.functions.values())
        reader.depth = self.depth + 1
        if reader.depth > DEPTH:
            raise BadCheckpoint(
                f"the function {proto.name!r} calls itself",
                why="functions of ONNX are expanded where they are called",
                do="export the model again",
            )
        reader._read_nodes(graph, proto.node, bindings)
        return graph

    def _read_nodes(
        self, graph: Graph, protos: Iterable[onnx.NodeProto], bindings: Bindings
    ) -> None:
        for proto in protos:
            attributes = [*filter(None, (_bound(x, bindings) for x in proto.attribute))]
            if proto.op_type == "Constant" and not proto.domain:
                values = {x.name: self._value(x, bindings) for x in attributes}
                graph.constants[proto.output[0]] = constant(values)
                graph.literals.add(proto.output[0])
            else:
                graph.nodes.append(self._node(proto, attributes, bindings))

    def _node(
        self, proto: onnx.NodeProto, attributes: list[AttributeProto], bindings: Bindings
    ) -> Node:
        if any(
            isinstance(x, bytes) for x in (proto.op_type, proto.name, *proto.input, *proto.output)
        ):
            raise BadCheckpoint(
                "a node has a name that is no text",
                why="protobuf gives bytes where they are not UTF-8",
                do="export or download the model again",
            )
        name = proto.name or next(filter(None, proto.output), proto.op_type)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        function = self.functions.get((proto.domain, proto.op_type, proto.overload))
        body = None if function is None else self.function(function, attributes)
        op = Op(domain, proto.op_type, 0)
        if body is None:
            op = op_of(domain, proto.op_type, self._opset(domain, name)) or op
        values = {x.name: self._value(x, bindings) for x in attributes}
        if bindings:
            bound = onnx.NodeProto()
            bound.CopyFrom(proto)
            del bound.attribute[:]
            bound.attribute.extend(attributes)
            proto = bound
        return Node(name, op, tuple(proto.input), tuple(proto.output), values, proto, body)

    def _opset(self, domain: str, name: str) -> int:
        if domain not in self.opsets:
            raise BadCheckpoint(
                f"the model names no opset of the domain {domain or 'ai.onnx'!r}",
                where=f"node {name!r}",
                why=f"its opset_import has {sorted(x or 'ai.onnx' for x in self.opsets)}",
                do="export the model again",
            )
        return self.opsets[domain]

    def _value(self, attribute: AttributeProto, bindings: Bindings) -> Any:
        match attribute.type:
            case AttributeProto.GRAPH:
                return self.graph(attribute.g, bindings)
            case AttributeProto.TENSOR:
                return array_of(attribute.t)
            case AttributeProto.SPARSE_TENSOR:
                return dense(attribute.sparse_tensor)
            case _:
                return plain(helper.get_attribute_value(attribute))


def _bound(attribute: AttributeProto, bindings: Bindings) -> AttributeProto | None:
    """Returns the attribute of the calling node that this one refers to, None if it has none."""
    if not attribute.ref_attr_name:
        return attribute
    if attribute.ref_attr_name not in bindings:
        return None
    bound = AttributeProto()
    bound.CopyFrom(bindings[attribute.ref_attr_name])
    bound.name = attribute.name
    return bound


def needed(graph: Graph, outputs: Iterable[str]) -> Graph:
    """Returns the part of a graph that computes these values.

    Raises:
      WrongArguments: nothing computes one of them.
    """
    outputs = tuple(outputs)
    makers = {name: node for node in graph.nodes for name in node.outputs if name}
    values = {*makers, *graph.inputs, *graph.constants}
    if wrong := [name for name in outputs if name not in values]:
        near = difflib.get_close_matches(wrong[0], values, 3) or [*makers][-3:]
        raise WrongArguments(
            f"the graph has no value {wrong[0]!r}",
            why=f"of its {len(values)} values, these are near: {', '.join(near)}",
            do="name outputs of its nodes",
        )
    pending, names, nodes = [*outputs], {*outputs}, set[int]()
    while pending:
        node = makers.get(pending.pop())
        if node is not None and id(node) not in nodes:
            nodes.add(id(node))
            further = {*node.inputs, *_captured(node)} - names
            names |= further
            pending += further
    return replace(
        graph,
        inputs=tuple(x for x in graph.inputs if x in names),
        outputs=outputs,
        nodes=[_with_outputs(x, names) for x in graph.nodes if id(x) in nodes],
        constants={k: v for k, v in graph.constants.items() if k in names},
    )


def _with_outputs(node: Node, names: set[str]) -> Node:
    return replace(node, outputs=tuple(x if x in names else "" for x in node.outputs))


def _captured(node: Node) -> set[str]:
    """Returns the names that the graphs inside of a node use."""
    graphs = [x for x in node.graphs() if x is not node.body]
    names = {name for graph in graphs for name in graph.outputs}
    for graph in graphs:
        for inner in graph.nodes:
            names |= {*inner.inputs} | _captured(inner)
    return names
