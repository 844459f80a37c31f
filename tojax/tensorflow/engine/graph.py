"""``GraphDef`` and ``FunctionDef`` as nodes in the order in which they are computed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tojax.errors import BadCheckpoint
from tojax.tensorflow.core import attributes
from tojax.tensorflow.core.private import op_def_of
from tojax.tensorflow.core.schema import sizes


class Edge(NamedTuple):
    """An output of a node."""

    node: str
    output: int = 0


@dataclass(eq=False)
class Node:
    """One operation: its inputs as edges, its attributes decoded when they are asked for."""

    name: str
    op: str
    inputs: tuple[Edge, ...]
    controls: tuple[str, ...]
    proto: Any
    last_use: list[str] = field(default_factory=list)  # nodes whose values nothing needs after it
    kept: dict[Any, Any] = field(default_factory=dict)  # what was worked out about it

    def attr(self, name: str) -> Any:
        """The value of an attribute, None if it has none of that name."""
        if name not in self.kept:
            held = self.proto.attr
            self.kept[name] = attributes.value_of(held[name]) if name in held else None
        return self.kept[name]

    def groups(self) -> list[int | None]:
        """How many inputs each input argument of the operator stands for; None for a single one."""
        key = "groups of inputs"  # no attribute's name
        if key not in self.kept:
            self.kept[key] = sizes(self.op, self.proto.attr, outputs=False)
        return self.kept[key]


Extra = Callable[[Node], list[Edge]]


@dataclass(eq=False)
class Graph:
    """Nodes in an order that respects data and control edges, and what goes in and out."""

    nodes: list[Node]
    inputs: tuple[str, ...]
    outputs: tuple[Edge, ...]
    name: str = ""

    @functools.cached_property
    def by_name(self) -> dict[str, Node]:
        """The nodes by their names."""
        return {node.name: node for node in self.nodes}


class Library(Mapping[str, Graph]):
    """The functions of a graph by name, parsed when they are first called."""

    def __init__(self, proto: Any, live: Any = None, read: Callable | None = None):
        self.live, self.read = live, read
        self.protos = {f.signature.name: f for f in proto.function}
        self.gradients = {g.function_name: g.gradient_func for g in proto.gradient}
        self.registered = {
            g.registered_op_type: g.gradient_func for g in proto.registered_gradients
        }
        self._graphs: dict[str, Graph] = {}

    def __getitem__(self, name: str) -> Graph:
        if name not in self._graphs:
            self._graphs[name] = of_function(self.protos[name], self._extra(name))
        return self._graphs[name]

    def _extra(self, name: str) -> Extra | None:
        """What reads the custom gradients of a function."""
        functions = getattr(self.live, "_functions", {})
        live = getattr(functions.get(name), "graph", None)  # one made by Defun keeps none
        if live is None or self.read is None:
            return None
        inputs = tuple(arg.name for arg in self.protos[name].signature.input_arg)
        return self.read(live, inputs)

    def __iter__(self) -> Iterator[str]:
        return iter(self.protos)

    def __len__(self) -> int:
        return len(self.protos)


def of_graph(
    proto: Any,
    inputs: Iterable[str],
    outputs: Iterable[str],
    ends: Iterable[str] = (),
    extra: Extra | None = None,
) -> Graph:
    """A ``GraphDef`` between these tensors; ``ends`` are operations that run for their effects, and
    ``extra`` tells what a node needs beside its inputs.
    """
    protos = {node.name: node for node in proto.node}
    given = tuple(x.partition(":")[0] for x in inputs)
    return _sorted(protos, given, tuple(_edge(protos, x) for x in outputs), ends, extra)


def of_function(proto: Any, extra: Extra | None = None) -> Graph:
    """A ``FunctionDef``."""
    protos = {node.name: node for node in proto.node_def}
    given = tuple(arg.name for arg in proto.signature.input_arg)
    outputs = tuple(_edge(protos, proto.ret[arg.name]) for arg in proto.signature.output_arg)
    ends = dict.fromkeys(proto.control_ret.values())
    return _sorted(protos, given, outputs, ends, extra, proto.signature.name)


def _sorted(protos, inputs, outputs, ends, extra, name="") -> Graph:
    """The nodes that the ends need, each after all that it needs itself."""
    done: dict[str, Node] = {}
    begun: dict[str, Node] = {}
    given = set(inputs)
    stack = [(x, False) for x in (*ends, *(e.node for e in outputs))][::-1]
    while stack:
        current, ready = stack.pop()
        if ready:
            done[current] = begun[current]
        elif current not in given and current not in begun:
            begun[current] = node = _node(protos, current)
            if extra is not None and "_gradient_op_type" in node.proto.attr:
                node.inputs += tuple(extra(node))
            stack.append((current, True))
            needs = (*node.controls, *(e.node for e in node.inputs))
            stack.extend((x, False) for x in reversed(needs) if x not in done)
    nodes = list(done.values())
    _mark_last_uses(nodes, outputs)
    return Graph(nodes, inputs, outputs, name)


def _node(protos: Mapping[str, Any], name: str) -> Node:
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


def _edge(protos: Mapping[str, Any], text: str) -> Edge:
    """``node``, ``node:0`` of a graph, or ``node:output:0`` of a function."""
    name, *rest = text.split(":")
    if len(rest) < 2:
        return Edge(name, int(rest[0]) if rest else 0)
    proto = protos[name]
    names = [arg.name for arg in op_def_of(proto.op).output_arg]
    before = sizes(proto.op, proto.attr)[: names.index(rest[0])]
    return Edge(name, sum(1 if n is None else n for n in before) + int(rest[1]))


def _mark_last_uses(nodes: list[Node], outputs: Iterable[Edge]) -> None:
    """So that what an evaluation outside of ``jit`` holds is freed as early as it can be."""
    kept = {edge.node for edge in outputs}
    for node in reversed(nodes):
        for edge in node.inputs:
            if edge.node not in kept:
                kept.add(edge.node)
                node.last_use.append(edge.node)
