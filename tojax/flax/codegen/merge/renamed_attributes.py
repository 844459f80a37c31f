"""Modules of one class whose code differs only in the attributes that name equal numbers.

In a square layer ``self.nx`` is ``self.nf``: either may have been found for a number of its code.
"""

from __future__ import annotations

import ast
from typing import Any

from tojax.flax.codegen.author.evaluate import is_number


def is_equal_body(body: list[ast.stmt], own_body: list[ast.stmt], module: Any) -> bool:
    """Returns whether one body computes for this module what its own body computes."""
    return len(body) == len(own_body) and all(
        _is_equal(a, b, module) for a, b in zip(body, own_body)
    )


def _is_equal(a: Any, b: Any, module: Any) -> bool:
    if isinstance(a, ast.AST):
        number = _number(a, module)
        if number is not None and isinstance(a, ast.Attribute):
            return number == _number(b, module)
        if type(a) is not type(b):
            return False
        assert isinstance(b, ast.AST)
        return all(_is_equal(getattr(a, x, None), getattr(b, x, None), module) for x in a._fields)
    if isinstance(a, list):
        return len(a) == len(b) and all(_is_equal(x, y, module) for x, y in zip(a, b))
    return a == b


def _number(expr: Any, module: Any) -> Any:
    """Returns the number that a constant, or an attribute of the module, is."""
    value = getattr(expr, "value", None)
    match expr:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            value = getattr(module, name, None)
    return value if is_number(value) else None
