"""The code of one class, before classes are merged; calls of one module have to share it."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from torch import fx

from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.python.sizes import Sizes

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


def canonical_code(parameters: list[str], body: list[ast.stmt]) -> str:
    """Returns the code of a function with numbered variables: their names do not count."""
    numbered = _NumberedNames()
    for name in parameters:
        numbered.store(name)
    tree = ast.Module([numbered.visit(copy.deepcopy(s)) for s in body], [])
    return ast.unparse(ast.fix_missing_locations(tree))


class _NumberedNames(ast.NodeTransformer):
    """Replaces names of variables by numbered ones."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.count, self.loops = count(), 0

    def store(self, name: str) -> None:
        """Numbers a name that is assigned; a name that a loop carries keeps its number."""
        if not self.loops or name not in self.numbers:
            self.numbers[name] = next(self.count)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        node.value = self.visit(node.value)  # which is read before the names are stored
        node.targets = [self.visit(x) for x in node.targets]
        return node

    def visit_For(self, node: ast.For) -> ast.stmt:
        self.loops += 1
        node.iter, node.target = self.visit(node.iter), self.visit(node.target)
        node.body = [self.visit(x) for x in node.body]
        self.loops -= 1
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Store):
            self.store(node.id)
        number = self.numbers.get(node.id)
        return node if number is None else ast.Name(f"value_{number}", node.ctx)
