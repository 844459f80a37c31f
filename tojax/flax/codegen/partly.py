"""Submodules that cannot be written and stay in PyTorch, called through tojax."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from torch import fx

from tojax.flax.codegen.authors import forward_of
from tojax.flax.codegen.blocks import Block
from tojax.flax.codegen.exporting import Graph


@dataclass(frozen=True)
class Call:
    """How a submodule is called: (name, value or constant) in order, and what it gives."""

    inputs: list[tuple[str, Any]]
    outputs: list[fx.Node | None]


def call_of(graph: Graph, block: Block) -> Call | None:
    """How PyTorch calls a submodule; None where that is not said, or not of plain arrays."""
    signature, forward = graph.signatures.get(block.path), forward_of(block.module.__class__)
    if forward is None or block.call != block.path:
        return None
    inputs = graph.given(block.path, forward.parameters())
    if inputs is None or signature is None:
        return None
    plain = lambda x: x is None or isinstance(x, (fx.Node, bool, int, float, str))
    given = {x for _, x in inputs if isinstance(x, fx.Node)}
    outputs = [graph.known.get(getattr(x, "name", "")) for x in signature.outputs]
    known = [x for x in outputs if isinstance(x, fx.Node)]
    if not all(plain(x) for _, x in inputs) or not set(block.inputs) <= given:
        return None
    return Call(inputs, outputs) if set(block.outputs) <= set(known) else None


def spelled(call: Call, value: Any) -> tuple[list[ast.expr], list[ast.keyword]]:
    """The arguments; ``value(node)`` writes an array."""
    look = lambda x: value(x) if isinstance(x, fx.Node) else ast.Constant(x)
    words = [ast.keyword(name, look(x)) for name, x in call.inputs[1:] if x is not None]
    return [look(x) for _, x in call.inputs[:1]], words


def leavable(graph: Graph, error: Any, left: set[type]) -> type | None:
    """The innermost module class around what cannot be written that can stay in PyTorch."""
    for block in error.blocks:
        if block.path and type(block.module) not in left and call_of(graph, block):
            return type(block.module)
    return None
