"""The form of each call of a module: a layer, a Sequential, a class, or lines of its caller."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol

import torch
from torch import fx

from anyjax.flax.codegen.graph.dropout_rates import rate_of, warn_left_out
from anyjax.flax.codegen.graph.graph import Graph
from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.module.layers import Layer, activation, layer_of
from anyjax.flax.codegen.module.steps import chain_of
from anyjax.flax.codegen.module.torch_parts import TorchCall, attention_call, torch_call


class Style(Protocol):
    """Everything that nnx and Linen spell differently.

    Attributes:
      constructs: matches a line that makes more than a plain value.
      reserved: attributes that all modules have.
    """

    constructs: re.Pattern[str]
    reserved: frozenset[str]

    def loader_name(self, name: str) -> str:
        """Returns the name by which the loader finds an array."""

    def exposes_weights(self, kinds: CallKinds, block: Block) -> bool:
        """Returns whether other modules may read the weights that they read of this block."""

    def mode_flags(self, kinds: CallKinds, block: Block) -> list[ast.keyword]:
        """Returns the arguments that switch a block to training mode."""

    def layer_flags(self, layer: str) -> list[ast.keyword]:
        """Returns these arguments for a layer of Flax."""

    def construct(self, call: ast.Call) -> ast.expr:
        """Returns the construction of a module."""

    def layer(self, layer: Layer) -> ast.expr:
        """Returns the construction of a layer of Flax."""

    def sequential(self, parts: list[ast.expr], kinds: CallKinds, path: str) -> ast.expr:
        """Returns a Sequential of these modules."""

    def module_list(self, modules: ast.expr) -> ast.expr:
        """Returns a list of modules as an attribute."""

    def module_dict(self, modules: dict[str, ast.expr]) -> ast.expr:
        """Returns a dict of modules as an attribute."""

    def parameter(self, drawn: str, shape: ast.expr) -> ast.expr:
        """Returns the holder of a parameter; ``drawn`` draws it: "rngs.params.normal(shape)"."""

    def table(self, values: ast.expr) -> ast.expr:
        """Returns the holder of a constant."""

    def buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> ast.expr:
        """Returns the holder of a constant that comes with the weights."""

    def is_buffer(self, holder: ast.expr) -> bool:
        """Returns whether a constant comes with the weights."""

    def read(self, attribute: ast.expr, holder: ast.expr | None = None) -> ast.expr:
        """Returns the array in one of these holders."""


class CallKinds:
    """Chooses the form of each block of a graph.

    Attributes:
      last: the values that are written with channels last.
      function: writes a module without parameters as a function of one input, None if it is none.
    """

    def __init__(
        self,
        graph: Graph,
        root: Block,
        style: Style,
        last: set[fx.Node],
        function: Callable[[Block], ast.expr | None],
        torch_types: Collection[type] = (),
    ):
        self.graph, self.root, self.style = graph, root, style
        self.last, self.function = last, function
        self.torch_calls: dict[Block, TorchCall] = {}
        for block in all_blocks(root):
            if type(block.module) in torch_types and (call := torch_call(graph, block)):
                self.torch_calls[block] = call
        self.layers: dict[Block, Layer | None] = {}
        self.sequentials: dict[str, bool] = {}
        self.activations: dict[Block, str | None] = {}
        for block in all_blocks(root):
            self.layer(block)
        self._set_attention()

    def _set_attention(self) -> None:
        """Makes nn.MultiheadAttention a layer, if the arguments of all calls are known."""
        attention = [x for x in self.layers if type(x.module) is torch.nn.MultiheadAttention]
        calls = {
            x: call for x in attention if self.layers[x] and (call := attention_call(self.graph, x))
        }
        if len(calls) == len(attention):
            self.torch_calls |= calls
        else:
            self.layers |= dict.fromkeys(attention)
            for x in attention:
                if x.module.dropout and not any(map(rate_of, x.nodes())):  # it gives its weights
                    warn_left_out(f"{x.path} is called in a way that no layer of the file has")

    def layer(self, block: Block) -> Layer | None:
        """Returns the layer of Flax that a block is, if it is one."""
        if block in self.torch_calls and block not in self.layers:
            return Layer("TorchPart", is_snippet=True)
        if block not in self.layers:
            has_own_weights = not any(self.role(x)[0] for x in block.inputs)
            # weight_norm and the like compute a layer's weight before they call it
            is_computed = any(isinstance(x, torch.Tensor) for x in vars(block.module).values())
            has_own_weights = has_own_weights and not is_computed
            may_be_layer = has_own_weights and self.style.exposes_weights(self, block)
            self.layers[block] = layer_of(block) if may_be_layer else None
        return self.layers[block]

    def is_called(self, block: Block) -> bool:
        """Returns whether a block is called; others are inlined into their caller."""
        if self.layer(block) or self.activation(block):
            return True
        if type(block.module) is torch.nn.Sequential and block.path:
            return self.sequential(block)
        stored = any(self.role(x)[0] for n in block.nodes() for x in n.all_input_nodes)
        return stored and any(self.owns(block, x) for n in block.nodes() for x in n.all_input_nodes)

    def activation(self, block: Block) -> str | None:
        """Returns the activation that a block is, if it is one."""
        if block not in self.activations:
            self.activations[block] = activation(block)
        return self.activations[block]

    def becomes_class(self, block: Block) -> bool:
        """Returns whether a block becomes a class."""
        return self.is_called(block) and not self.is_layer_like(block)

    def layer_name(self, path: str) -> str | None:
        """Returns the layer of Flax that a module is, where it is called."""
        layers = (layer for block, layer in self.layers.items() if block.path == path and layer)
        layer = next(layers, None)
        return layer.name.removeprefix("Padded") if layer else None

    def is_layer_like(self, block: Block) -> bool:
        """Returns whether a block is called with one value, as a layer is."""
        return bool(self.layer(block) or self.activation(block) or self.sequential(block))

    def sequential(self, block: Block) -> bool:
        """Returns whether a block is an ``nnx.Sequential``, in all its calls."""
        if block.path not in self.sequentials:
            self.sequentials[block.path] = False
            calls = [x for x in all_blocks(self.root) if x.path == block.path]
            children = [p for x in all_blocks(self.root) for p in x.children() if x not in calls]
            inside = {y for x in calls for y in all_blocks(x)}
            is_self_contained = all(
                x in inside or not x.path.startswith(block.prefix) for x in children
            )
            self.sequentials[block.path] = is_self_contained and all(map(self.is_chain, calls))
        return self.sequentials[block.path]

    def is_chain(self, block: Block) -> bool:
        """Returns whether the modules of a Sequential agree on the layout of what they pass on."""
        chain = chain_of(block)
        if type(block.module) is not torch.nn.Sequential or chain is None:
            return False
        for i, x in enumerate(chain):
            if i and self.wants_last(x) != (x.inputs[0] in self.last):
                return False
            is_inlined = not self.is_called(x) or self.activation(x)
            if is_inlined and (self.style.mode_flags(self, x) or self.function(x) is None):
                return False
        return True

    def wants_last(self, block: Block) -> bool:
        """Returns whether a block takes its first value with channels last."""
        if self.layer(block):
            return block.outputs[0] in self.last
        if type(block.module) is torch.nn.Sequential and (chain := chain_of(block)):
            return self.wants_last(chain[0])
        return block.inputs[0] in self.last

    def role(self, node: fx.Node) -> tuple[str, str]:
        """Returns the kind and name of a parameter, buffer or constant, ("", "") of other nodes."""
        kind, name = self.graph.roles.get(node, ("", ""))
        return (kind, name) if kind not in ("", "input") else ("", "")

    def owns(self, block: Block, node: fx.Node) -> bool:
        """Returns whether a parameter, buffer or constant is inside of a block's module."""
        kind, name = self.role(node)
        return bool(kind) and name.startswith(block.prefix)

    def config(self, block: Block) -> Any:
        """Returns the configuration of a module, or of the nearest module around it."""
        homes = [block.path.rsplit(".", i)[0] for i in range(block.path.count(".") + 1)]
        modules = [self.root.module.get_submodule(x) for x in (*homes, "")]
        return next((x.config for x in modules if hasattr(x, "config")), None)


def all_blocks(block: Block) -> Iterator[Block]:
    """Yields a block and those inside it."""
    yield block
    for child in block.children():
        yield from all_blocks(child)
