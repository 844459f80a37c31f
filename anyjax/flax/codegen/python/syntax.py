"""Syntax trees: nodes replaced, variables read and assigned."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TypeVar, cast

Tree = TypeVar("Tree", bound=ast.AST)


def replaced(tree: Tree, replacement: Callable[[ast.AST], ast.AST | None]) -> Tree:
    """Returns a tree, which is changed, with another node wherever ``replacement`` returns one.

    Example:
      >>> ast.unparse(replaced(ast.parse("x + x * y"), lambda n: getattr(n, "left", None)))
      'x'
    """
    return cast("Tree", _Replacing(replacement).visit(tree))


class _Replacing(ast.NodeTransformer):
    def __init__(self, replacement: Callable[[ast.AST], ast.AST | None]):
        self.replacement = replacement

    def visit(self, node: ast.AST) -> ast.AST:
        new = self.replacement(node)
        return self.generic_visit(node) if new is None else new


def replaced_by_id(tree: Tree, nodes: Mapping[int, ast.expr]) -> Tree:
    """Returns a tree with these nodes in place of those with these ids."""
    return replaced(tree, lambda x: nodes.get(id(x)))


def names_loaded(*trees: ast.AST) -> set[str]:
    """Returns the variables that are read."""
    names = (x for tree in trees for x in ast.walk(tree) if isinstance(x, ast.Name))
    return {x.id for x in names if isinstance(x.ctx, ast.Load)}


def names_stored(*trees: ast.AST) -> set[str]:
    """Returns the variables that are assigned."""
    names = (x for tree in trees for x in ast.walk(tree) if isinstance(x, ast.Name))
    return {x.id for x in names if isinstance(x.ctx, ast.Store)}


def name_of(text: str) -> ast.Name:
    """Returns a variable that is read."""
    return ast.Name(text, ast.Load())


def target(names: str | Sequence[str]) -> ast.expr:
    """Returns a variable that is assigned, or a tuple of several."""
    if isinstance(names, str):
        return ast.Name(names, ast.Store())
    return ast.Tuple([target(x) for x in names], ast.Store())


def assignment(names: str | Sequence[str], value: ast.expr) -> ast.Assign:
    """Returns ``name = value``, or ``one, other = value``."""
    return ast.Assign([target(names)], value, lineno=0)


def free_name(name: str, taken: Container[str]) -> str:
    """Returns a name, with underscores at its end until it is not taken."""
    while name in taken:
        name += "_"
    return name
