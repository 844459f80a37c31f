"""What a function does one after the other: operators, calls of submodules, loops over them."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tojax.flax.codegen.graph.functionalize import packet
from tojax.flax.codegen.graph.submodule_tree import Block, is_size


@dataclass(eq=False)
class Step:
    """One of them.

    Attributes:
      reads: the values it takes, each as often as it takes it.
      makes: the values it gives; None for those that nobody reads.
      nodes: the operators behind it, first the one whose line in the source is that of the step.
      name: what to call its result where the author does not say.
      block: the call of a submodule that it is.
      roll: the loop that it is.
      parts: whether it gives a list, be it of one value.
    """

    reads: list[fx.Node]
    makes: list[fx.Node | None]
    nodes: list[fx.Node]
    name: str
    block: Block | None = None
    roll: Any = None
    parts: bool = False

    @property
    def node(self) -> fx.Node:
        return self.nodes[0]


def steps_of(block: Block, whole: Any, parts: Any = ()) -> list[Step]:
    """The steps of a block; submodules that are not ``whole(block)`` are taken apart.

    ``parts`` are called as PyTorch calls them.
    """
    found = []
    for item in _apart(block, whole):
        step = _call(item, block) if isinstance(item, Block) else _operator(item)
        if isinstance(item, Block) and step is not None and item in parts:
            step.reads = [x for _, x in parts[item].inputs if isinstance(x, fx.Node)]
            step.makes = [x if x in item.outputs else None for x in parts[item].outputs]
        found += [] if step is None else [step]
    return found


def _apart(block: Block, whole: Any) -> list[fx.Node | Block]:
    found: list[fx.Node | Block] = []
    for item in block.items:
        found += _apart(item, whole) if isinstance(item, Block) and not whole(item) else [item]
    return found


def chained(block: Block) -> list[Block] | None:
    """The modules of a Sequential that hands one value from each to the next."""
    if type(block.module) is not torch.nn.Sequential or not block.items:
        return None
    chain: list[Block] = []
    for i, item in enumerate(block.items):
        if not isinstance(item, Block) or len(item.inputs) != 1 or len(item.outputs) != 1:
            return None
        if item.path.rpartition(".")[0] != block.path or "@" in item.call:
            return None
        if i and (item.inputs != chain[-1].outputs or chain[-1].outputs[0] in block.outputs):
            return None
        chain.append(item)
    return chain


def _operator(node: fx.Node) -> Step | None:
    """An operator; reading a part of a result belongs to what made it."""
    if node.target is operator.getitem and isinstance(node.args[0].meta.get("val"), (tuple, list)):
        return None
    makes: list[fx.Node | None] = [node]
    several = isinstance(made := node.meta.get("val"), (tuple, list))
    if several:
        parts = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        makes = [parts.get(i) for i in range(len(made))]
    name = packet(node).rpartition(".")[2].strip("_")
    return Step(operands(node), makes, [node], name, parts=several)


def operands(node: fx.Node) -> list[fx.Node]:
    """The values among a node's arguments."""
    found: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), lambda n: None if is_size(n) else found.append(n))
    return found


def _call(block: Block, caller: Block) -> Step:
    name = block.path.rpartition(".")[2]
    name = block.path.split(".")[-2] if name.isdigit() and "." in block.path else name
    known = lambda x: x in block.inputs and x not in caller.outputs  # it is only handed on
    makes: list[fx.Node | None] = [None if known(x) else x for x in block.outputs]
    whole = {x.args[0] for x in block.outputs if x.target is operator.getitem}
    layer = isinstance(block.module, torch.nn.RNNBase)  # which gives all that torch's does
    if layer and len(whole) == 1 and all(x.target is operator.getitem for x in block.outputs):
        parts = {x.args[1]: x for x in block.outputs}
        makes = [parts.get(i) for i in range(len(whole.pop().meta["val"]))]
    return Step(list(block.inputs), makes, list(block.nodes()), name, block)
