"""A graph's nodes in the order in which they are computed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tensorflow.core.framework.node_def_pb2 import NodeDef

from tojax.tensorflow.core import attributes
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
    used: set[int] = field(default_factory=set)  # which of its outputs anything needs

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


@dataclass(eq=False)
class Graph:
    """Nodes in an order that respects data and control edges, and what goes in and out."""

    nodes: list[Node]
    inputs: tuple[str, ...]
    outputs: tuple[Edge, ...]
    name: str = ""
    ends: tuple[str, ...] = ()  # nodes that run for their effects
    parts: dict[frozenset[int], Graph] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.name

    @functools.cached_property
    def by_name(self) -> dict[str, Node]:
        """The nodes by their names."""
        return {node.name: node for node in self.nodes}

    @functools.cached_property
    def needs(self) -> set[int]:
        """Which of its inputs it uses."""
        read = {edge.node for node in self.nodes for edge in node.inputs}
        read |= {edge.node for edge in self.outputs}
        return {i for i, name in enumerate(self.inputs) if name in read}

    def part(self, wanted: Iterable[int]) -> Graph:
        """What computes some of the outputs, and the effects: a loop that TensorFlow has
        differentiated also collects values, for a gradient that may not be asked for.
        """
        key = frozenset(wanted)
        if len(key) == len(self.outputs):
            return self
        if key not in self.parts:
            outputs = tuple(self.outputs[i] for i in sorted(key))
            find = lambda name: replace(self.by_name[name])
            self.parts[key] = in_order(find, self.inputs, outputs, self.ends, self.name)
        return self.parts[key]


def in_order(
    find: Callable[[str], Node],
    inputs: tuple[str, ...],
    outputs: tuple[Edge, ...],
    ends: Iterable[str] = (),
    name: str = "",
) -> Graph:
    """The nodes that the ends need, each after all that it needs itself; ``find`` is asked once for
    each.
    """
    done: dict[str, Node] = {}
    begun: dict[str, Node] = {}
    given, ends = set(inputs), tuple(ends)
    stack = [(x, False) for x in (*ends, *(e.node for e in outputs))][::-1]
    while stack:
        current, ready = stack.pop()
        if ready:
            done[current] = begun[current]
        elif current not in given and current not in begun:
            begun[current] = node = find(current)
            stack.append((current, True))
            needs = (*node.controls, *(e.node for e in node.inputs))
            stack.extend((x, False) for x in reversed(needs) if x not in done)
    nodes = list(done.values())
    _mark_uses(nodes, outputs)
    return Graph(nodes, inputs, outputs, name, ends)


def _mark_uses(nodes: list[Node], outputs: Iterable[Edge]) -> None:
    """Which outputs are used, and where last: what an evaluation outside of ``jit`` holds is freed
    as early as it can be.
    """
    used: dict[str, set[int]] = {}
    for edge in (*outputs, *(edge for node in nodes for edge in node.inputs)):
        used.setdefault(edge.node, set()).add(edge.output)
    kept = {edge.node for edge in outputs}
    for node in reversed(nodes):
        node.last_use, node.used = [], used.get(node.name, set())
        for edge in node.inputs:
            if edge.node not in kept:
                kept.add(edge.node)
                node.last_use.append(edge.node)


def bare(name: str, op: str, inputs: Iterable[Edge], controls: tuple[str, ...] = ()) -> Node:
    """A node that no graph of TensorFlow has."""
    return Node(name, op, tuple(inputs), controls, NodeDef(name=name, op=op))


class Part:
    """A part of a graph as graphs of its own, which share their inputs.

    ``resolve(edge)`` tells which edge it stands for and whether that comes from outside of the
    part; ``resolve.passes(name)`` whether a control edge from that node means nothing inside.
    """

    def __init__(self, nodes: Mapping[str, Node], resolve: Any):
        self.nodes, self.resolve = nodes, resolve
        self.outside: list[Edge] = []  # what the inputs are in the graph around
        self.controls: dict[str, None] = {}  # nodes outside that something inside waits for
        self.copies: dict[str, Node] = {}

    def edge(self, edge: Edge) -> Edge:
        """An edge as it is inside of the part."""
        found, outer = self.resolve(edge)
        if not outer:
            return found
        if found not in self.outside:
            self.outside.append(found)
        return Edge(_given(self.outside.index(found)))

    def add(self, outputs: Iterable[Edge], ends: Iterable[str] = ()) -> None:
        """Copies all that these need."""
        pending = [self.resolve(e)[0].node for e in outputs if not self.resolve(e)[1]]
        pending += [x for x in ends if not self.resolve.passes(x)]
        for edge in outputs:
            self.edge(edge)
        while pending:
            name = pending.pop()
            if name in self.copies:
                continue
            node = self.nodes[name]
            inputs = tuple(map(self.edge, node.inputs))
            node = self.nodes[name]  # an inner loop may have taken its place
            self.controls.update((c, None) for c in node.controls if self.resolve.passes(c))
            controls = tuple(c for c in node.controls if not self.resolve.passes(c))
            copy = replace(node, inputs=inputs, controls=controls, kept=dict(node.kept))
            self.copies[name] = copy
            inside = (e for e in map(self.resolve, node.inputs) if not e[1])
            pending += [*(e[0].node for e in inside), *controls]

    def graph(
        self, name: str, outputs: Iterable[Edge], ends: Iterable[str] = (), rest: bool = False
    ) -> Graph:
        """A graph of all inputs; with ``rest`` it hands on those that no output stands for."""
        inputs = tuple(map(_given, range(len(self.outside))))
        leaving = tuple(map(self.edge, outputs))
        if rest:
            leaving += tuple(map(Edge, inputs[len(leaving) :]))
        find = lambda x: replace(self.copies[x], kept=dict(self.copies[x].kept))
        ends = [x for x in ends if not self.resolve.passes(x)]
        return in_order(find, inputs, leaving, ends, name)


def _given(place: int) -> str:
    return f"(input {place})"  # no node's name
