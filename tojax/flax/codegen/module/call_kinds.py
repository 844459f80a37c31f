"""What becomes of each call of a module: a layer, a Sequential, a class, or lines of its caller."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from tojax.flax.codegen.graph.dropout_rates import left_out, rate_of
from tojax.flax.codegen.graph.graph import Graph
from tojax.flax.codegen.graph.submodule_tree import Block
from tojax.flax.codegen.module.activations import activation
from tojax.flax.codegen.module.layers import Layer, layer_of
from tojax.flax.codegen.module.operators import Operators
from tojax.flax.codegen.module.steps import chained
from tojax.flax.codegen.module.torch_parts import Call, attending, call_of


class Kinds:
    """Decides it for the blocks of a graph."""

    def __init__(self, graph: Graph, root: Block, style: Any, left: Collection[type] = ()):
        self.graph, self.root, self.style = graph, root, style
        self.parts: dict[Block, Call] = {}
        for block in all_blocks(root):
            if type(block.module) in left and (call := call_of(graph, block)):
                self.parts[block] = call
        self.layers: dict[Block, Layer | None] = {}
        self.sequentials: dict[str, bool] = {}
        self.activations: dict[Block, str | None] = {}
        self.operators = Operators(graph)
        self.last = self.operators.last
        for block in all_blocks(root):
            self.layer(block)
        self._attending()

    def _attending(self) -> None:
        """nn.MultiheadAttention is a layer if it is known how each call of each of them goes."""
        found = [x for x in self.layers if type(x.module) is torch.nn.MultiheadAttention]
        calls = {x: call for x in found if self.layers[x] and (call := attending(self.graph, x))}
        if len(calls) == len(found):
            self.parts |= calls
        else:
            self.layers |= dict.fromkeys(found)
            for x in found:
                if x.module.dropout and not any(map(rate_of, x.nodes())):  # it gives its weights
                    left_out(f"{x.path} is called in a way that no layer of the file has")

    def layer(self, block: Block) -> Layer | None:
        if block in self.parts and block not in self.layers:
            return Layer("TorchPart", own=True)
        if block not in self.layers:
            own = not any(self.role(x)[0] for x in block.inputs) and self.style.opens(self, block)
            self.layers[block] = layer_of(block) if own else None
        return self.layers[block]

    def whole(self, block: Block) -> bool:
        """Whether a block is called; others are taken apart into their caller."""
        if self.layer(block) or self.activation(block):
            return True
        if type(block.module) is torch.nn.Sequential and block.path:
            return self.sequential(block)
        stored = any(self.role(x)[0] for n in block.nodes() for x in n.all_input_nodes)
        return stored and any(self.own(block, x) for n in block.nodes() for x in n.all_input_nodes)

    def activation(self, block: Block) -> str | None:
        """The activation that a block is."""
        if block not in self.activations:
            self.activations[block] = activation(block)
        return self.activations[block]

    def plain(self, block: Block) -> bool:
        """Whether a block is called with its one value as a layer is."""
        return bool(self.layer(block) or self.activation(block) or self.sequential(block))

    def sequential(self, block: Block) -> bool:
        """Whether a block is an ``nnx.Sequential``: all its calls only hand values through it."""
        if block.path not in self.sequentials:
            self.sequentials[block.path] = False
            calls = [x for x in all_blocks(self.root) if x.path == block.path]
            parts = [p for x in all_blocks(self.root) for p in x.children() if x not in calls]
            inside = {y for x in calls for y in all_blocks(x)}
            alone = all(x in inside or not x.path.startswith(f"{block.path}.") for x in parts)
            self.sequentials[block.path] = alone and all(map(self.hands_through, calls))
        return self.sequentials[block.path]

    def hands_through(self, block: Block) -> bool:
        """Whether each module of a Sequential is one, and takes values as the one before gives."""
        chain = chained(block)
        if type(block.module) is not torch.nn.Sequential or chain is None:
            return False
        for i, x in enumerate(chain):
            if i and self.wants_last(x) != (x.inputs[0] in self.last):
                return False
            written = not self.whole(x) or self.activation(x)
            if written and (self.style.told(self, x) or self.function(x) is None):
                return False
        return True

    def wants_last(self, block: Block) -> bool:
        """Whether a block takes its first value with channels last."""
        if self.layer(block):
            return block.outputs[0] in self.last
        if type(block.module) is torch.nn.Sequential and (chain := chained(block)):
            return self.wants_last(chain[0])
        return block.inputs[0] in self.last

    def role(self, node: fx.Node) -> tuple[str, str]:
        kind, name = self.graph.roles.get(node, ("", ""))
        return (kind, name) if kind not in ("", "input") else ("", "")

    def own(self, block: Block, node: fx.Node) -> bool:
        kind, name = self.role(node)
        return bool(kind) and name.startswith(f"{block.path}." if block.path else "")

    def config(self, block: Block) -> Any:
        """The configuration of a module, or else of the innermost one around it that has one."""
        homes = [block.path.rsplit(".", i)[0] for i in range(block.path.count(".") + 1)]
        modules = [self.root.module.get_submodule(x) for x in (*homes, "")]
        return next((x.config for x in modules if hasattr(x, "config")), None)

    def function(self, block: Block) -> Any:
        """A module without parameters as a function of its one input; None if it is none."""
        raise NotImplementedError


def all_blocks(block: Block):
    """A block and those inside it."""
    yield block
    for child in block.children():
        yield from all_blocks(child)
