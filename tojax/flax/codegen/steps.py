"""What a function does one after the other: operators, calls of submodules, loops over them."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import fx

from tojax.flax.codegen.blocks import Block, is_size


@dataclass(eq=False)
class Step:
    """One of them.

    Attributes:
      reads: the values it takes, each as often as it takes it.
      makes: the values it gives; None for those that nobody reads.
      nodes: the operators behind it, first the one whose line in the source is that of the step.
      name: what to call its result where the author does not say.
      block: the call of a submodule that it is.
      blocks: the calls that a loop makes; ``carry`` is the input that goes from one to the next.
    """

    reads: list[fx.Node]
    makes: list[fx.Node | None]
    nodes: list[fx.Node]
    name: str
    block: Block | None = None
    blocks: tuple[Block, ...] = ()
    carry: int = 0

    @property
    def node(self) -> fx.Node:
        return self.nodes[0]


def steps_of(block: Block, whole: Any) -> list[Step]:
    """The steps of a block; submodules that are not ``whole(block)`` are taken apart."""
    items: list[fx.Node | Block] = []
    for item in block.items:
        if isinstance(item, Block) and not whole(item):
            items += _apart(item, whole)
        else:
            items.append(item)
    found = [_step(x) for x in items]
    return _rolled([step for step in found if step is not None])


def _step(item: fx.Node | Block) -> Step | None:
    if not isinstance(item, Block):
        return _operator(item)
    chain = chained(item)
    return _loop([_call(x) for x in chain], 0) if chain else _call(item)


def chained(block: Block) -> list[Block] | None:
    """The modules of a Sequential that hands one value from each to the next."""
    if type(block.module) is not torch.nn.Sequential or not block.items:
        return None
    chain = block.items
    for i, item in enumerate(chain):
        if not isinstance(item, Block) or len(item.inputs) != 1 or len(item.outputs) != 1:
            return None
        if item.path.rpartition(".")[0] != block.path or "@" in item.call:
            return None
        if i and (item.inputs != chain[i - 1].outputs or chain[i - 1].outputs[0] in block.outputs):
            return None
    return chain


def _apart(block: Block, whole: Any) -> list[fx.Node | Block]:
    found: list[fx.Node | Block] = []
    for item in block.items:
        found += _apart(item, whole) if isinstance(item, Block) and not whole(item) else [item]
    return found


def _operator(node: fx.Node) -> Step | None:
    """An operator; reading a part of a result belongs to what made it."""
    if node.target is operator.getitem and isinstance(node.args[0].meta.get("val"), (tuple, list)):
        return None
    makes: list[fx.Node | None] = [node]
    if isinstance(made := node.meta.get("val"), (tuple, list)):
        parts = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        makes = [parts.get(i) for i in range(len(made))]
    return Step(operands(node), makes, [node], str(node.target).split(".")[1].strip("_"))


def operands(node: fx.Node) -> list[fx.Node]:
    """The values among a node's arguments."""
    found: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), lambda n: None if is_size(n) else found.append(n))
    return found


def _call(block: Block) -> Step:
    name = block.path.rpartition(".")[2]
    name = block.path.split(".")[-2] if name.isdigit() and "." in block.path else name
    makes: list[fx.Node | None] = list(block.outputs)
    whole = {x.args[0] for x in block.outputs if x.target is operator.getitem}
    layer = isinstance(block.module, torch.nn.RNNBase)  # which gives all that torch's does
    if layer and len(whole) == 1 and all(x.target is operator.getitem for x in block.outputs):
        parts = {x.args[1]: x for x in block.outputs}
        makes = [parts.get(i) for i in range(len(whole.pop().meta["val"]))]
    return Step(list(block.inputs), makes, list(block.nodes()), name, block)


def _rolled(steps: list[Step]) -> list[Step]:
    """Calls of a list's modules one after the other, as one loop."""
    found: list[Step] = []
    i = 0
    while i < len(steps):
        run = [steps[i]]
        while i + len(run) < len(steps) and _follows(run[-1], steps[i + len(run)]):
            run.append(steps[i + len(run)])
        while (carry := _carry(run)) is None and len(run) > 1:
            run.pop()
        found.append(run[0] if carry is None else _loop(run, carry))
        i += len(run)
    return found


def _follows(step: Step, other: Step) -> bool:
    """Whether one is the call of ``layers.0`` and the other that of ``layers.1``."""
    if step.block is None or other.block is None:
        return False
    (home, _, one), (same, _, next_) = (x.path.rpartition(".") for x in (step.block, other.block))
    if not (one.isdigit() and next_.isdigit() and home == same and int(next_) == int(one) + 1):
        return False
    return (
        len(step.block.inputs) == len(other.block.inputs)
        and len(step.makes) == len(other.makes) == 1
    )


def _carry(run: list[Step]) -> int | None:
    """The input that is the output of the one before, if that is all that differs."""
    for one, other in pairwise(run):
        places = [i for i, (a, b) in enumerate(zip(one.reads, other.reads)) if a is not b]
        if len(places) != 1 or other.reads[places[0]] is not one.makes[0]:
            return None
        inside = {u for u in one.makes[0].users if u.op != "output"}
        if not inside <= set(other.nodes) | {u for u in inside if is_size(u)}:
            return None
        if any(u.op == "output" for u in one.makes[0].users):
            return None
    found = {
        i
        for one, other in pairwise(run)
        for i, (a, b) in enumerate(zip(one.reads, other.reads))
        if a is not b
    }
    return found.pop() if len(found) == 1 else None


def _loop(run: list[Step], carry: int) -> Step:
    blocks = tuple(step.block for step in run if step.block)
    nodes = [n for step in run for n in step.nodes]
    name = run[0].name
    single = name[:-1] if name.endswith("s") and len(name) > 2 else "layer"
    return Step(run[0].reads, run[-1].makes, nodes, single, None, blocks, carry)
