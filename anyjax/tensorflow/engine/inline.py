"""Inlining: the nodes of a function replace its call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anyjax.tensorflow.core.nodes import Edge, Graph, Node, in_order
from anyjax.tensorflow.engine.gradients import CALLS
from anyjax.tensorflow.engine.graph import Library


def inlined(graph: Graph, library: Library, chosen: Callable[[Node], bool]) -> Graph:
    """Inlines the calls that are ``chosen``; a function's nodes are named after the call."""
    nodes: dict[str, Node] = {}
    values: dict[Edge, Edge] = {}  # outputs of calls
    waits: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        inputs = tuple(values.get(e, e) for e in node.inputs)
        controls = tuple(y for x in node.controls for y in waits.get(x, (x,)))
        if node.op not in CALLS or not chosen(node):
            nodes[node.name] = replace(
                node, inputs=inputs, controls=controls, cache=dict(node.cache), last_use=[]
            )
            continue
        inner = inlined(library[node.attr("f")], library, chosen)
        arguments = dict(zip(inner.inputs, inputs))
        inside = lambda e, arguments=arguments, call=node.name: (
            arguments[e.node] if e.node in arguments else Edge(f"{call}/{e.node}", e.output)
        )
        for x in inner.nodes:
            name = f"{node.name}/{x.name}"
            waits_for = (f"{node.name}/{c}" for c in x.controls if c not in arguments)
            nodes[name] = replace(
                x,
                name=name,
                inputs=tuple(map(inside, x.inputs)),
                controls=(*waits_for, *controls),
                last_use=[],
            )
        values.update((Edge(node.name, i), inside(e)) for i, e in enumerate(inner.outputs))
        waits[node.name] = tuple(f"{node.name}/{x.name}" for x in inner.nodes)
    outputs = tuple(values.get(e, e) for e in graph.outputs)
    return in_order(nodes.__getitem__, graph.inputs, outputs, tuple(nodes), graph.name)
