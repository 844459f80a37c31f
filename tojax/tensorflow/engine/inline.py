"""Calls of functions put in the place of their calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tojax.tensorflow.core.nodes import Edge, Graph, Node, in_order
from tojax.tensorflow.engine.gradients import CALLS
from tojax.tensorflow.engine.graph import Library


def inlined(graph: Graph, library: Library, chosen: Callable[[Node], bool]) -> Graph:
    """The graph without the calls that are chosen; a function's nodes are named after the call."""
    nodes: dict[str, Node] = {}
    values: dict[Edge, Edge] = {}  # outputs of calls
    waits: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        inputs = tuple(values.get(e, e) for e in node.inputs)
        controls = tuple(y for x in node.controls for y in waits.get(x, (x,)))
        if node.op not in CALLS or not chosen(node):
            nodes[node.name] = replace(
                node, inputs=inputs, controls=controls, kept=dict(node.kept), last_use=[]
            )
            continue
        inner = inlined(library[node.attr("f")], library, chosen)
        given = dict(zip(inner.inputs, inputs))
        inside = lambda e, given=given, call=node.name: (
            given[e.node] if e.node in given else Edge(f"{call}/{e.node}", e.output)
        )
        for x in inner.nodes:
            name = f"{node.name}/{x.name}"
            own = (*(f"{node.name}/{c}" for c in x.controls if c not in given), *controls)
            nodes[name] = replace(
                x, name=name, inputs=tuple(map(inside, x.inputs)), controls=own, last_use=[]
            )
        values.update((Edge(node.name, i), inside(e)) for i, e in enumerate(inner.outputs))
        waits[node.name] = tuple(f"{node.name}/{x.name}" for x in inner.nodes)
    outputs = tuple(values.get(e, e) for e in graph.outputs)
    return in_order(nodes.__getitem__, graph.inputs, outputs, tuple(nodes), graph.name)
