"""The layers of a graph: scopes of names with one output, which taps know beside the nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from anyjax import trees
from anyjax.errors import Unsupported
from anyjax.stablehlo.core.static_values import as_jax
from anyjax.tensorflow.core.nodes import Edge, Graph, Node
from anyjax.tensorflow.core.running import Running
from anyjax.tensorflow.engine.graph import Library


def exits(graph: Graph) -> dict[str, list[tuple[str, int]]]:
    """Returns (path, number of the output) of what each node computes, by its name: its own path,
    and those of the layers that return it, without scopes that have the name of a node. Cached in
    the graph.
    """
    if graph.exits is None:
        edges: dict[str, set[Edge]] = defaultdict(set)
        uses = [(edge, node.name) for node in graph.nodes for edge in node.inputs]
        for edge, user in [*uses, *((edge, "") for edge in graph.outputs)]:
            for scope in _scopes(edge.node):
                if not user.startswith(f"{scope}/"):
                    edges[scope].add(edge)
        points = {node.name: [(node.name, 0)] for node in graph.nodes}
        for scope, returned in edges.items():
            (edge, *others) = returned
            if not others and edge.node in points and scope not in points:
                points[edge.node].append((scope, edge.output))
        graph.exits = points
    return graph.exits


def _scopes(name: str) -> Iterator[str]:
    """Yields the scopes around a node, the innermost first."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def paths(library: Library, graph: Graph) -> list[str]:
    """Returns the paths of layers and nodes of a graph, and of the functions that it calls."""
    called, names = [graph], dict[str, None]()
    functions = {str(name) for name in library}
    while called:
        current = called.pop()
        for node in current.nodes:
            names |= dict.fromkeys(path for path, _ in exits(current)[node.name])
            for function in {node.op, *_functions(node)} & functions:
                functions.discard(function)
                called.append(library[function])
    return [*names]


def _functions(node: Node) -> Iterator[str]:
    """Yields the names of the functions among a node's attributes."""
    for value in node.proto.attr.values():
        if value.HasField("func"):
            yield value.func.name


def tapped(run: Running, graph: Graph, node: Node, inputs: Any, out: tuple) -> tuple:
    """Returns the outputs of a node, with the edits of its taps; lenient ones leave values as they
    are that the program does not compute.
    """
    for path, number in exits(graph)[node.name]:
        if number < len(out) and trees.is_array(out[number]):
            is_fixed = lambda value: not run.is_computed(value)
            read = partial(_inputs, node, path)
            value = run.tapped(path, out[number], inputs, read, as_jax, is_fixed)
            out = (*out[:number], value, *out[number + 1 :])
    return out


def _inputs(node: Node, path: str, inputs: Sequence[Any]) -> tuple[tuple, dict]:
    """Returns what a node was called with.

    Raises:
      Unsupported: the path is that of a layer.
    """
    if path != node.name:
        raise Unsupported(
            f"the inputs of {path}",
            why="a layer is a scope of nodes in TensorFlow, which are called one by one",
            do=f"tap the outputs of the layer before it, or a node: {node.name}",
        )
    return tuple(map(as_jax, inputs)), {}
