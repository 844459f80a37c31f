"""The steps of a function: operators, calls of submodules, loops over them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import fx

from anyjax.flax.codegen.graph.functionalize import packet
from anyjax.flax.codegen.graph.submodule_tree import Block, is_size
from anyjax.flax.codegen.module.torch_parts import TorchCall


@dataclass(eq=False)
class Step:
    """An operator, the call of a submodule, or a loop.

    Attributes:
      reads: the values that it takes, each as often as it takes it.
      makes: its results; None for those that nobody reads.
      nodes: the operators behind it; the first one has the step's line in the source.
      name: a name for its result where the author has none.
      block: the submodule, if it is a call of one.
      loop: the loop, if it is one.
      gives_list: whether its result is a list, even of one value.
    """

    reads: list[fx.Node]
    makes: list[fx.Node | None]
    nodes: list[fx.Node]
    name: str
    block: Block | None = None
    loop: Loop | None = None
    gives_list: bool = False

    @property
    def node(self) -> fx.Node:
        return self.nodes[0]


@dataclass(eq=False)
class Loop:
    """A loop.

    Attributes:
      rounds: its steps, round by round; each does the same with the next module of each list.
      lists: the paths of the lists, each with the place where it begins.
      carries: values that go from round to round: the initial value, the value that enters the
        second round, the value that the second round makes of it, and the final value.
      outside: values from outside that other rounds than the second read.
    """

    rounds: list[list[Step]]
    lists: dict[str, int]
    carries: list[tuple[fx.Node, fx.Node, fx.Node, fx.Node]]
    outside: list[fx.Node]

    @property
    def written_round(self) -> list[Step]:
        """The round that is written: it tells carried values from those that only come in."""
        return self.rounds[1]

    def inner(self) -> list[fx.Node]:
        """Returns the values from inside the loop that the written round reads or passes on."""
        made_inside = {x for step in self.written_round for x in step.makes}
        made_inside |= {carried for _, carried, _, _ in self.carries}
        read = [x for step in self.written_round for x in step.reads if x in made_inside]
        return read + [updated for _, _, updated, _ in self.carries]


def steps_of(
    block: Block, is_called: Callable[[Block], bool], torch_calls: Mapping[Block, TorchCall]
) -> list[Step]:
    """Returns the steps of a block; submodules that are not ``is_called(block)`` are inlined.

    ``torch_calls`` are the submodules that PyTorch's arguments are passed to.
    """
    steps = []
    for item in _inlined(block, is_called):
        step = _call_step(item, block) if isinstance(item, Block) else _operator_step(item)
        if isinstance(item, Block) and step is not None and item in torch_calls:
            step.reads = [x for _, x in torch_calls[item].inputs if isinstance(x, fx.Node)]
            step.makes = [x if x in item.outputs else None for x in torch_calls[item].outputs]
        steps += [] if step is None else [step]
    return steps


def _inlined(block: Block, is_called: Callable[[Block], bool]) -> list[fx.Node | Block]:
    items: list[fx.Node | Block] = []
    for item in block.items:
        is_inlined = isinstance(item, Block) and not is_called(item)
        items += _inlined(item, is_called) if is_inlined else [item]
    return items


def chain_of(block: Block) -> list[Block] | None:
    """Returns the modules of a Sequential that hands one value from each to the next, else None."""
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


def _operator_step(node: fx.Node) -> Step | None:
    """Returns an operator's step; reading one of its results belongs to it."""
    if node.target is operator.getitem and isinstance(node.args[0].meta.get("val"), (tuple, list)):
        return None
    makes: list[fx.Node | None] = [node]
    is_list = isinstance(result := node.meta.get("val"), (tuple, list))
    if is_list:
        readers = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        makes = [readers.get(i) for i in range(len(result))]
    name = packet(node).rpartition(".")[2].strip("_")
    return Step(operands(node), makes, [node], name, gives_list=is_list)


def operands(node: fx.Node) -> list[fx.Node]:
    """Returns the values among a node's arguments."""
    values: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), lambda n: None if is_size(n) else values.append(n))
    return values


def _call_step(block: Block, caller: Block) -> Step:
    name = block.path.rpartition(".")[2]
    name = block.path.split(".")[-2] if name.isdigit() and "." in block.path else name
    passes_through = lambda x: x in block.inputs and x not in caller.outputs  # it is only handed on
    makes: list[fx.Node | None] = [None if passes_through(x) else x for x in block.outputs]
    sources = {x.args[0] for x in block.outputs if x.target is operator.getitem}
    layer = isinstance(block.module, torch.nn.RNNBase)  # which gives all that torch's does
    if layer and len(sources) == 1 and all(x.target is operator.getitem for x in block.outputs):
        by_index = {x.args[1]: x for x in block.outputs}
        makes = [by_index.get(i) for i in range(len(sources.pop().meta["val"]))]
    return Step(list(block.inputs), makes, list(block.nodes()), name, block)
