"""``GraphDef`` and ``FunctionDef`` as nodes in the order in which they are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from anyjax.errors import BadCheckpoint
from anyjax.tensorflow.control_flow.functionalize import functionalized, needed
from anyjax.tensorflow.core.nodes import Edge, Graph, Node, in_order
from anyjax.tensorflow.core.private import graph_of_function, op_def_of
from anyjax.tensorflow.core.schema import sizes

Extra = Callable[[Node], list[Edge]]


class Library(Mapping[Any, Graph]):
    """The functions of a graph by name, parsed when they are first called."""

    def __init__(self, proto: Any, live: Any = None, read: Callable | None = None):
        self.live, self.read = live, read
        self.protos = {f.signature.name: f for f in proto.function}
        self.gradients = {g.function_name: g.gradient_func for g in proto.gradient}
        self.registered = {
            g.registered_op_type: g.gradient_func for g in proto.registered_gradients
        }
        self._graphs: dict[str, Graph] = {}

    def __getitem__(self, name: str | Graph) -> Graph:
        if isinstance(name, Graph):  # a branch or a body of TensorFlow 1
            return name
        if name not in self._graphs:
            self._graphs[name] = of_function(self.protos[name], self._extra(name), self.protos)
        return self._graphs[name]

    def _extra(self, name: str) -> Extra | None:
        """Returns the reader of the custom gradients of a function, if it has any."""
        functions = getattr(self.live, "_functions", {})
        if name not in functions or self.read is None:
            return None
        graph = getattr(functions[name], "graph", None)
        if graph is None and self._has_gradients(name):  # a GraphDef was imported
            with self.live.as_default():
                graph = graph_of_function(self.protos[name])
        inputs = tuple(arg.name for arg in self.protos[name].signature.input_arg)
        return None if graph is None else self.read(graph, inputs)

    def _has_gradients(self, name: str) -> bool:
        nodes = self.protos[name].node_def
        return any("_gradient_op_type" in node.attr for node in nodes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.protos)

    def __len__(self) -> int:
        return len(self.protos)


class Nodes(dict[str, Any]):
    """The nodes of a function by name, and the functions that they may call."""

    library: Mapping[str, Any] = {}

    def outputs(self, node: Any) -> tuple[list[str], list[int | None]]:
        """Returns names and sizes of a node's outputs."""
        if (definition := op_def_of(node.op)) is not None:
            return [arg.name for arg in definition.output_arg], sizes(node.op, node.attr)
        names = [arg.name for arg in self.library[node.op].signature.output_arg]
        return names, [None] * len(names)


def of_graph(
    proto: Any,
    inputs: Iterable[str],
    outputs: Iterable[str],
    ends: Iterable[str] = (),
    extra: Extra | None = None,
) -> Graph:
    """Reads a ``GraphDef`` between these tensors; ``ends`` are operations that run for their
    effects, and ``extra`` returns what a node needs beside its inputs.
    """
    protos = Nodes({node.name: node for node in proto.node})
    input_names = tuple(x.partition(":")[0] for x in inputs)
    return _sorted(protos, input_names, tuple(_edge(protos, x) for x in outputs), ends, extra)


def of_function(
    proto: Any, extra: Extra | None = None, library: Mapping[str, Any] | None = None
) -> Graph:
    """Reads a ``FunctionDef``; its nodes may call functions of ``library`` as operators."""
    protos = Nodes({node.name: node for node in proto.node_def})
    protos.library = library or {}
    input_names = tuple(arg.name for arg in proto.signature.input_arg)
    outputs = tuple(_edge(protos, proto.ret[arg.name]) for arg in proto.signature.output_arg)
    ends = dict.fromkeys(proto.control_ret.values())
    return _sorted(protos, input_names, outputs, ends, extra, proto.signature.name)


def _sorted(protos, inputs, outputs, ends, extra, name="") -> Graph:
    def find(current: str) -> Node:
        node = _node(protos, current)
        if extra is not None and "_gradient_op_type" in node.proto.attr:
            node.inputs += tuple(extra(node))
        return node

    ends = tuple(ends)
    graph = in_order(find, inputs, outputs, ends, name)
    return functionalized(graph, ends) if needed(graph) else graph


def _node(protos: Nodes, name: str) -> Node:
    if name not in protos:
        raise BadCheckpoint(
            f"the graph has no node {name!r}",
            why="another of its nodes takes it as an input",
            do="export the model again",
        )
    proto = protos[name]
    inputs = tuple(_edge(protos, x) for x in proto.input if not x.startswith("^"))
    controls = tuple(x[1:] for x in proto.input if x.startswith("^"))
    return Node(name, proto.op, inputs, controls, proto)


def _edge(protos: Nodes, text: str) -> Edge:
    """Parses ``node``, ``node:0`` of a graph, or ``node:output:0`` of a function."""
    name, *rest = text.split(":")
    if len(rest) < 2:
        return Edge(name, int(rest[0]) if rest else 0)
    names, counts = protos.outputs(protos[name])
    earlier = counts[: names.index(rest[0])]
    return Edge(name, sum(1 if n is None else n for n in earlier) + int(rest[1]))
