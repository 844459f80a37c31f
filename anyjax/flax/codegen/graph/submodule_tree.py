"""The flat graph as a tree: one block for each call of a submodule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import fx

from anyjax.flax.codegen.graph.dropout_rates import calls_of
from anyjax.flax.codegen.graph.graph import Graph


@dataclass(eq=False)
class Block:
    """One call of a module.

    Attributes:
      path: the module's dotted name; "" is the whole model.
      call: the same, with "@1" and so on for its second call and later ones.
      items: operators and calls of submodules, in order.
      inputs: values from outside that it reads, parameters of other modules included.
      outputs: its values that are read outside.
    """

    path: str
    call: str
    module: torch.nn.Module
    items: list[fx.Node | Block] = field(default_factory=list)
    inputs: list[fx.Node] = field(default_factory=list)
    outputs: list[fx.Node] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        """The beginning of the dotted names inside of the module."""
        return f"{self.path}." if self.path else ""

    def inner(self, name: str) -> str:
        """Returns a dotted name inside of the module without the module's own."""
        return name[len(self.prefix) :]

    def nodes(self) -> Iterator[fx.Node]:
        """Yields all operators, those of submodules included."""
        for item in self.items:
            if isinstance(item, Block):
                yield from item.nodes()
            else:
                yield item

    def children(self) -> list[Block]:
        return [x for x in self.items if isinstance(x, Block)]


def is_size(node: fx.Node) -> bool:
    """Returns whether a node is a Python number: a size, or arithmetic of sizes."""
    return isinstance(
        node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)
    )


def block_tree(graph: Graph, module: torch.nn.Module) -> Block:
    """Returns the block of the whole module."""
    root = Block("", "", module)
    open_blocks = [root]
    for node in graph.nodes:
        if is_size(node):
            continue
        calls = calls_of(node)
        depth = 1
        while (
            depth < min(len(open_blocks), len(calls) + 1)
            and open_blocks[depth].call == calls[depth - 1]
        ):
            depth += 1
        del open_blocks[depth:]
        for call in calls[depth - 1 :]:
            path = call.partition("@")[0]
            block = Block(path, call, module.get_submodule(path))
            open_blocks[-1].items.append(block)
            open_blocks.append(block)
        open_blocks[-1].items.append(node)
    _set_interfaces(root, graph)
    return root


def _set_interfaces(root: Block, graph: Graph) -> None:
    """Sets the inputs and outputs of all blocks."""
    results = set(graph.leaves())

    def visit(block: Block) -> None:
        inside = set(block.nodes())
        for node in block.nodes():
            for operand in node.all_input_nodes:
                kind, name = graph.roles.get(operand, ("", ""))
                is_own = kind in ("param", "buffer", "constant") and name.startswith(block.prefix)
                is_inner = is_own or operand in inside or is_size(operand)
                if not is_inner and operand not in block.inputs:
                    block.inputs.append(operand)
            readers = [x for x in node.users if x.op != "output" and not is_size(x)]
            if node in results or not inside.issuperset(readers):
                block.outputs.append(node)
        for child in block.children():
            visit(child)

    visit(root)
    root.outputs = list(dict.fromkeys(graph.leaves()))
