"""The interface of the two styles of Flax modules, nnx and Linen."""

from __future__ import annotations

import ast
import re
from typing import Any, Protocol

import torch

from tojax.flax.codegen.graph.submodule_tree import Block
from tojax.flax.codegen.module.layers import Layer


class Style(Protocol):
    """Everything that nnx and Linen spell differently.

    Attributes:
      constructs: matches a line that makes more than a plain value.
    """

    constructs: re.Pattern[str]

    def exposes_weights(self, writer: Any, block: Block) -> bool:
        """Returns whether other modules may read the weights that they read of this block."""

    def mode_flags(self, writer: Any, block: Block) -> list[ast.keyword]:
        """Returns the arguments by which a block is told whether this is training."""

    def layer_flags(self, layer: str) -> list[ast.keyword]:
        """Returns these arguments for a layer of Flax."""

    def construct(self, call: ast.Call) -> ast.expr:
        """Returns the construction of a module."""

    def layer(self, layer: Layer) -> ast.expr:
        """Returns the construction of a layer of Flax."""

    def sequential(self, parts: list[ast.expr], writer: Any, path: str) -> ast.expr:
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

    def read(self, attribute: ast.expr, holder: ast.expr | None = None) -> ast.expr:
        """Returns the array in one of these holders."""

    def file(self, writer: Any, root: Block) -> str:
        """Returns the text of the file."""
