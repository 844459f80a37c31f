"""Submodules that cannot be written and stay in PyTorch, called through anyjax."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from anyjax.flax.codegen.author.source_lines import forward_of
from anyjax.flax.codegen.graph.graph import Graph
from anyjax.flax.codegen.graph.submodule_tree import Block


@dataclass(frozen=True)
class TorchCall:
    """The arguments of a submodule's call, (name, value or constant) in order, and its results.

    Attributes:
      positional: the number of inputs that are passed by position.
    """

    inputs: list[tuple[str, Any]]
    outputs: list[fx.Node | None]
    positional: int = 1


def torch_call(graph: Graph, block: Block) -> TorchCall | None:
    """Returns how PyTorch calls a submodule; None if that is unknown or takes more than arrays."""
    signature, forward = graph.signatures.get(block.path), forward_of(block.module.__class__)
    if forward is None or block.call != block.path:
        return None
    inputs = graph.call_arguments(block.path, forward.parameters())
    if inputs is None or signature is None:
        return None
    is_plain = lambda x: x is None or isinstance(x, (fx.Node, bool, int, float, str))
    arguments = {x for _, x in inputs if isinstance(x, fx.Node)}
    outputs = [graph.by_name.get(getattr(x, "name", "")) for x in signature.outputs]
    nodes = [x for x in outputs if isinstance(x, fx.Node)]
    if not all(is_plain(x) for _, x in inputs) or not set(block.inputs) <= arguments:
        return None
    return TorchCall(inputs, outputs) if set(block.outputs) <= set(nodes) else None


def call_arguments(
    call: TorchCall, value: Callable[[fx.Node], ast.expr]
) -> tuple[list[ast.expr], list[ast.keyword]]:
    """Returns the arguments; ``value(node)`` writes an array."""
    expression = lambda x: value(x) if isinstance(x, fx.Node) else ast.Constant(x)
    positional, keywords = call.inputs[: call.positional], call.inputs[call.positional :]
    words = [ast.keyword(name, expression(x)) for name, x in keywords if x is not None]
    return [expression(x) for _, x in positional], words


def attention_call(graph: Graph, block: Block) -> TorchCall | None:
    """Returns how nn.MultiheadAttention is called, without arguments that do not change values."""
    call = torch_call(graph, block)
    if call is None or len(call.outputs) != 2 or call.inputs[0][1].meta["val"].ndim != 3:
        return None
    hints = {"need_weights", "is_causal"}  # masks say the latter as well
    inputs = [x for x in call.inputs if x[0] not in hints and x != ("average_attn_weights", True)]
    weights = call.outputs[1] in block.outputs
    return TorchCall(inputs, call.outputs if weights else call.outputs[:1], positional=3)


def type_to_leave(graph: Graph, blocks: list[Block], torch_types: set[type]) -> type | None:
    """Returns the first module class of these blocks that can stay in PyTorch, if there is one."""
    for block in blocks:
        if block.path and type(block.module) not in torch_types and torch_call(graph, block):
            return type(block.module)
    return None
