"""Submodules that cannot be written and stay in PyTorch, called through tojax."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from torch import fx

from tojax.flax.codegen.author.source_lines import forward_of
from tojax.flax.codegen.graph.graph import Graph
from tojax.flax.codegen.graph.submodule_tree import Block


@dataclass(frozen=True)
class Call:
    """How a submodule is called: (name, value or constant) in order, and what it gives.

    Attributes:
      positional: how many of the inputs go without their names.
    """

    inputs: list[tuple[str, Any]]
    outputs: list[fx.Node | None]
    positional: int = 1


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
    first, rest = call.inputs[: call.positional], call.inputs[call.positional :]
    words = [ast.keyword(name, look(x)) for name, x in rest if x is not None]
    return [look(x) for _, x in first], words


def attending(graph: Graph, block: Block) -> Call | None:
    """How nn.MultiheadAttention is called, without what its values do not depend on."""
    call = call_of(graph, block)
    if call is None or len(call.outputs) != 2 or call.inputs[0][1].meta["val"].ndim != 3:
        return None
    hints = {"need_weights", "is_causal"}  # masks say the latter as well
    given = [x for x in call.inputs if x[0] not in hints and x != ("average_attn_weights", True)]
    weights = call.outputs[1] in block.outputs
    return Call(given, call.outputs if weights else call.outputs[:1], positional=3)


def leavable(graph: Graph, error: Any, left: set[type]) -> type | None:
    """The innermost module class around what cannot be written that can stay in PyTorch."""
    for block in error.blocks:
        if block.path and type(block.module) not in left and call_of(graph, block):
            return type(block.module)
    return None
