"""Calls of one module share a class, whose code has to serve each of them."""

from __future__ import annotations

import ast
import copy
from itertools import count


def canonical_code(parameters: list[str], body: list[ast.stmt]) -> str:
    """Returns a function's code with its variables numbered in order, whatever their names."""
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
