"""A graph as this frontend evaluates it: nodes in their order, values by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anyjax.onnx.core.schema import Op


@dataclass(eq=False)
class Node:
    """One node; ``body`` is the graph of the function that it calls, if it calls one.

    Attributes:
      name: its own, or that of its first output.
      inputs: names of values, "" for an input that is left out.
      attributes: numbers, text, numpy arrays, graphs.
      proto: ONNX's own node.
      cache: what is worked out once for all evaluations.
    """

    name: str
    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    proto: Any
    body: Graph | None = None
    cache: dict[str, Any] = field(default_factory=dict)

    def graphs(self) -> list[Graph]:
        inside = [x for x in self.attributes.values() if isinstance(x, Graph)]
        return inside if self.body is None else [*inside, self.body]

    def place(self) -> str:
        """Describes the node in errors."""
        return f"node {self.name!r} ({self.op})"


@dataclass(eq=False)
class Graph:
    """Nodes, and the names of inputs and outputs.

    Attributes:
      constants: the values that it has itself.
      weights: those that are params or state of the model, by their names there.
      literals: the constants that are nodes.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: list[Node]
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)
    literals: set[str] = field(default_factory=set)

    def each(self) -> Iterator[tuple[Graph, Node]]:
        """Yields the nodes with their graph, and those of the graphs inside of them."""
        for node in self.nodes:
            yield self, node
            for graph in node.graphs():
                yield from graph.each()
