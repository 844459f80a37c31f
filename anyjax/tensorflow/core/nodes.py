"""A graph's nodes in the order in which they are computed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tensorflow.core.framework.node_def_pb2 import NodeDef

from anyjax.tensorflow.core import attributes
from anyjax.tensorflow.core.schema import sizes


class Edge(NamedTuple):
    """An output of a node."""

    node: str
    output: int = 0


@dataclass(eq=False)
class Node:
    """One operation: its inputs as edges, its attributes decoded on demand."""

    name: str
    op: str
    inputs: tuple[Edge, ...]
    controls: tuple[str, ...]
    proto: Any
    last_use: list[str] = field(default_factory=list)  # nodes whose values are used here last
    cache: dict[Any, Any] = field(default_factory=dict)  # attributes, plan, gradient, branches
    used: set[int] = field(default_factory=set)  # outputs that anything needs

    def attr(self, name: str) -> Any:
        """Returns the value of an attribute, None if there is none of that name."""
        if name not in self.cache:
            attr = self.proto.attr
            self.cache[name] = attributes.value_of(attr[name]) if name in attr else None
        return self.cache[name]

    def groups(self) -> list[int | None]:
        """Counts the inputs of each input argument of the operator, None for a single one."""
        key = "groups of inputs"  # no attribute's name
        if key not in self.cache:
            self.cache[key] = sizes(self.op, self.proto.attr, outputs=False)
        return self.cache[key]


@dataclass(eq=False)
class Graph:
    """Nodes in an order that respects data and control edges, with inputs and outputs."""

    nodes: list[Node]
    inputs: tuple[str, ...]
    outputs: tuple[Edge, ...]
    name: str = ""
    ends: tuple[str, ...] = ()  # nodes that run for their effects
    pruned: dict[frozenset[int], Graph] = field(default_factory=dict, repr=False)
    exits: dict[str, list[tuple[str, int]]] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.name

    @functools.cached_property
    def by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @functools.cached_property
    def needs(self) -> set[int]:
        """The inputs that nodes or outputs use, by position."""
        read = {edge.node for node in self.nodes for edge in node.inputs}
        read |= {edge.node for edge in self.outputs}
        return {i for i, name in enumerate(self.inputs) if name in read}

    def for_outputs(self, places: Iterable[int]) -> Graph:
        """Returns the graph of some outputs and of all effects: a loop that TensorFlow has
        differentiated also collects values, for a gradient that may not be needed.
        """
        key = frozenset(places)
        if len(key) == len(self.outputs):
            return self
        if key not in self.pruned:
            outputs = tuple(self.outputs[i] for i in sorted(key))
            find = lambda name: replace(self.by_name[name])
            self.pruned[key] = in_order(find, self.inputs, outputs, self.ends, self.name)
        return self.pruned[key]


def in_order(
    find: Callable[[str], Node],
    inputs: tuple[str, ...],
    outputs: tuple[Edge, ...],
    ends: Iterable[str] = (),
    name: str = "",
) -> Graph:
    """Returns the graph that computes ``outputs`` and runs ``ends``, each node after its inputs;
    ``find`` is called once for each node.
    """
    done: dict[str, Node] = {}
    begun: dict[str, Node] = {}
    input_names, ends = set(inputs), tuple(ends)
    stack = [(x, False) for x in (*ends, *(e.node for e in outputs))][::-1]
    while stack:
        current, ready = stack.pop()
        if ready:
            done[current] = begun[current]
        elif current not in input_names and current not in begun:
            begun[current] = node = find(current)
            stack.append((current, True))
            needs = (*node.controls, *(e.node for e in node.inputs))
            stack.extend((x, False) for x in reversed(needs) if x not in done)
    nodes = list(done.values())
    _mark_uses(nodes, outputs)
    return Graph(nodes, inputs, outputs, name, ends)


def _mark_uses(nodes: list[Node], outputs: Iterable[Edge]) -> None:
    """Notes which outputs are used, and where last: outside of ``jit`` an evaluation frees values
    as early as it can.
    """
    used: dict[str, set[int]] = {}
    for edge in (*outputs, *(edge for node in nodes for edge in node.inputs)):
        used.setdefault(edge.node, set()).add(edge.output)
    used_later = {edge.node for edge in outputs}
    for node in reversed(nodes):
        node.last_use, node.used = [], used.get(node.name, set())
        for edge in node.inputs:
            if edge.node not in used_later:
                used_later.add(edge.node)
                node.last_use.append(edge.node)


def bare(name: str, op: str, inputs: Iterable[Edge], controls: tuple[str, ...] = ()) -> Node:
    """Returns a new node that no graph of TensorFlow has."""
    return Node(name, op, tuple(inputs), controls, NodeDef(name=name, op=op))


class Subgraph:
    """Nodes of a graph that become graphs with shared inputs: a branch, a loop's body.

    ``resolve(edge)`` returns the edge that it stands for, and whether that comes from outside;
    ``resolve.passes(name)`` whether a control edge from that node can be dropped inside.
    """

    def __init__(self, nodes: Mapping[str, Node], resolve: Any):
        self.nodes, self.resolve = nodes, resolve
        self.outside: list[Edge] = []  # the inputs, as edges of the outer graph
        self.controls: dict[str, None] = {}  # outer nodes that inner ones wait for
        self.copies: dict[str, Node] = {}

    def edge(self, edge: Edge) -> Edge:
        resolved, is_outer = self.resolve(edge)
        if not is_outer:
            return resolved
        if resolved not in self.outside:
            self.outside.append(resolved)
        return Edge(_input_name(self.outside.index(resolved)))

    def add(self, outputs: Iterable[Edge], ends: Iterable[str] = ()) -> None:
        """Copies all nodes that outputs and ends need."""
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
            node = self.nodes[name]  # an inner loop may have replaced it
            self.controls.update((c, None) for c in node.controls if self.resolve.passes(c))
            controls = tuple(c for c in node.controls if not self.resolve.passes(c))
            copy = replace(node, inputs=inputs, controls=controls, cache=dict(node.cache))
            self.copies[name] = copy
            inside = (e for e in map(self.resolve, node.inputs) if not e[1])
            pending += [*(e[0].node for e in inside), *controls]

    def graph(
        self, name: str, outputs: Iterable[Edge], ends: Iterable[str] = (), carry: bool = False
    ) -> Graph:
        """Returns a graph of all inputs; with ``carry`` its outputs go on with further inputs."""
        inputs = tuple(map(_input_name, range(len(self.outside))))
        leaving = tuple(map(self.edge, outputs))
        if carry:
            leaving += tuple(map(Edge, inputs[len(leaving) :]))
        find = lambda x: replace(self.copies[x], cache=dict(self.copies[x].cache))
        ends = [x for x in ends if not self.resolve.passes(x)]
        return in_order(find, inputs, leaving, ends, name)


def _input_name(place: int) -> str:
    return f"(input {place})"  # no node's name
