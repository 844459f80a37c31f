"""The statement that asks for a condition, read from its source."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from functools import lru_cache
from types import CodeType

# The code that functions of statements came from (statements.py), which torch code sees in frames.
ORIGINAL: dict[CodeType, CodeType] = {}
CHECKS = {"torch_compilable_check"}  # transformers' name for an assertion


@lru_cache(None)
def test_at(code: CodeType, line: int) -> ast.If | ast.Assert | None:
    """Returns the innermost statement whose test is on this line; none inside a ``try``, whose
    handlers would see what is raised.
    """
    tree = tree_of(code)
    if tree is None:
        return None
    line -= ORIGINAL.get(code, code).co_firstlineno - 1
    caught = [y for x in ast.walk(tree) if isinstance(x, ast.Try) for y in ast.walk(x)]
    every = (_assertion(x) for x in ast.walk(tree) if x not in caught)
    tests = [x for x in every if isinstance(x, (ast.If, ast.Assert))]
    enclosing = [x for x in tests if x.lineno <= line <= (x.test.end_lineno or x.lineno)]
    return enclosing[-1] if enclosing else None


@lru_cache(None)
def tree_of(code: CodeType) -> ast.Module | None:
    """Returns the source of a function, whose first line is 1; None where there is none."""
    code = ORIGINAL.get(code, code)
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]  # inspect visits all
    block = lines if code.co_name == "<module>" else inspect.getblock(lines)
    try:
        return ast.parse(textwrap.dedent("".join(block)))
    except SyntaxError:
        return None


def _assertion(node: ast.AST) -> ast.AST:
    """Returns a call that checks what it is given, as the ``assert`` that it stands for."""
    match node:
        case ast.Expr(ast.Call(func=ast.Name(id=name), args=[test, *_])) if name in CHECKS:
            return ast.copy_location(ast.Assert(test), node)
    return node
