"""Modules of one class whose code differs only in which of their equal numbers it names.

In a square layer ``self.nx`` is ``self.nf``: either may have been found for a number of its code.
"""

from __future__ import annotations

import ast
from typing import Any

from tojax.flax.codegen.author.evaluate import is_number


def fits(body: list[ast.stmt], other: list[ast.stmt], module: Any) -> bool:
    """Whether the one body does for this module what its own body does."""
    return len(body) == len(other) and all(_same(a, b, module) for a, b in zip(body, other))


def _same(a: Any, b: Any, module: Any) -> bool:
    if isinstance(a, ast.AST):
        named = _number(a, module)
        if named is not None and isinstance(a, ast.Attribute):
            return named == _number(b, module)
        if type(a) is not type(b):
            return False
        assert isinstance(b, ast.AST)
        return all(_same(getattr(a, x, None), getattr(b, x, None), module) for x in a._fields)
    if isinstance(a, list):
        return len(a) == len(b) and all(_same(x, y, module) for x, y in zip(a, b))
    return a == b


def _number(expr: Any, module: Any) -> Any:
    """The number that an attribute of a module, or a constant, is."""
    found = getattr(expr, "value", None)
    match expr:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            found = getattr(module, name, None)
    return found if is_number(found) else None
