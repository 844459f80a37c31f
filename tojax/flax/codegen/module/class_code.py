"""The code of one class, before classes are merged."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from tojax.flax.codegen.graph.submodule_tree import Block
from tojax.flax.codegen.python.sizes import Sizes

Field = ast.expr | Block | None  # of a class: a value, or the block that is constructed


@dataclass(eq=False)
class ClassCode:
    """The code of a class as one block has it.

    Attributes:
      name: the name of the torch class.
      inputs: the values of the parameters.
      parameters: the parameters of ``__call__``.
      body: the statements of ``__call__``.
      fields: expressions that ``__init__`` assigns, by attribute.
      result_names: the names of the results.
      sizes: names of the sizes that the caller passes.
      argument_sizes: the sizes of its arguments.
      optional: parameters that are None by default.
    """

    name: str
    inputs: list[fx.Node]
    parameters: list[str]
    body: list[ast.stmt]
    fields: dict[str, Field]
    result_names: list[str] = field(default_factory=list)
    sizes: dict[Any, str] = field(default_factory=dict)
    argument_sizes: Sizes = field(default_factory=lambda: Sizes({}, {}, set()))
    optional: set[str] = field(default_factory=set)

    def takes(self) -> list[str]:
        """Returns the parameters as they stand in the definition."""
        return [f"{x}=None" if x in self.optional else x for x in self.parameters]
