"""The flat graph as a tree: one block for each call of a submodule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import fx

from tojax.flax.codegen.graph.dropout_rates import calls_of
from tojax.flax.codegen.graph.graph import Graph


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
    results: set[fx.Node] = set()
    torch.utils._pytree.tree_map_only(fx.Node, results.add, graph.outputs)

    def visit(block: Block) -> None:
        inside = set(block.nodes())
        prefix = f"{block.path}." if block.path else ""
        for node in block.nodes():
            for operand in node.all_input_nodes:
                kind, name = graph.roles.get(operand, ("", ""))
                is_own = kind in ("param", "buffer", "constant") and name.startswith(prefix)
                if (
                    operand not in inside
                    and not is_own
                    and not is_size(operand)
                    and operand not in block.inputs
                ):
                    block.inputs.append(operand)
            if node in results or any(
                user not in inside and not is_size(user)
                for user in node.users
                if user.op != "output"
            ):
                block.outputs.append(node)
        for child in block.children():
            visit(child)

    visit(root)
    leaves = [n for n in torch.utils._pytree.tree_leaves(graph.outputs) if isinstance(n, fx.Node)]
    root.outputs = list(dict.fromkeys(leaves))
