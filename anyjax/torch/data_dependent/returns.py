"""``return`` in branches and loops that are rewritten (rewriting.py).

.. code-block:: python

    if fits:                          if fits:
        return x                          out = x
    y = step(x)                       else:
    return y                              y = step(x)
                                          out = y
                                      return out

What follows an ``if`` moves into its ways. A loop that returns ends, and an ``if`` behind it
returns the same.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
LOOPS = (ast.While, ast.For, ast.AsyncFor)
OUT, DONE = "_anyjax_out", "_anyjax_done"


def leaves(node: ast.AST) -> bool:
    """Returns whether a ``return`` is the end of a way, which gives the names it has."""
    return getattr(node, "leaves", False)


def joined(body: list[ast.stmt], lines: frozenset[int]) -> list[ast.stmt]:
    """Returns statements of a function in which none on these lines holds a ``return``."""
    for i, statement in enumerate(body):
        start, rest = body[:i], body[i + 1 :]
        if isinstance(statement, (ast.While, ast.For)) and statement.lineno in lines:
            inside = [*own(statement.body)]
            returns = [x for x in inside if isinstance(x, ast.Return)]
            within = any(isinstance(x, (ast.With, ast.Try)) and holds_return(x) for x in inside)
            # behind the loop a value would be computed outside of its no_grad
            loop = [*ended(statement, returns)] if returns and not within else []
        else:
            loop = []
        if loop:
            return [*start, *joined([*loop, *rest], lines)]
        if isinstance(statement, ast.If) and any(
            isinstance(x, ast.If) and x.lineno in lines and holds_return(x)
            for x in own([statement])
        ):
            return [*start, *branched(statement, rest, lines)]
    return body


def branched(statement: ast.If, rest: list[ast.stmt], lines: frozenset[int]) -> list[ast.stmt]:
    """Returns an ``if`` with what follows it in its ways, and the ``return`` behind it."""
    ways = [
        joined([*way, *(copy.deepcopy(rest) if falls_through(way) else [])], lines)
        for way in (statement.body, statement.orelse)
    ]
    if statement.lineno not in lines:  # Python's own
        return [ast.copy_location(ast.If(statement.test, *ways), statement)]
    last = max(getattr(x, "end_lineno", 0) or 0 for x in (statement, *rest))
    nothing = ast.copy_location(ast.Return(ast.Constant(None)), statement)
    bodies = [
        [y for x in way + [nothing] * falls_through(way) for y in listed(Leaves().visit(x))]
        for way in ways
    ]
    new = ast.copy_location(ast.If(statement.test, *bodies), statement)
    new.end_lineno, new.returns = last, True  # type: ignore[attr-defined]
    out = ast.Return(ast.Name(OUT, ast.Load()))
    for node in ast.walk(out):
        node.lineno = node.end_lineno = last + 1  # type: ignore[attr-defined]
        node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    return [new, out]


def ended(loop: ast.While | ast.For, returns: list[ast.Return]) -> Iterator[ast.stmt]:
    """Yields a loop that ends where it returned, what says so, and each ``return`` behind it."""
    endless = isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant)
    endless &= not any(isinstance(x, ast.Break) for x in own(loop.body))
    loop = copy.deepcopy(loop)
    breaks = Breaks()
    loop.body = [y for x in loop.body for y in listed(breaks.visit(x))]
    for i in range(len(returns)):
        yield ast.copy_location(flag(i, False), loop)
    yield loop
    for i, statement in enumerate(returns):
        value = copy.deepcopy(statement)
        if endless and statement is returns[-1]:
            yield value
            return
        yield ast.copy_location(ast.If(ast.Name(f"{DONE}{i}", ast.Load()), [value], []), loop)


def flag(number: int, value: bool) -> ast.stmt:
    """Returns the statement that says whether a loop ended at a ``return``."""
    return ast.Assign([ast.Name(f"{DONE}{number}", ast.Store())], ast.Constant(value))


class Breaks(ast.NodeTransformer):
    """Writes each ``return`` of a loop as the end of the loop, in the order of ``own``."""

    def __init__(self) -> None:
        self.count = 0

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        self.count += 1
        new = [flag(self.count - 1, True), ast.Break()]
        return [ast.copy_location(x, node) for x in new]

    def visit_While(self, node: ast.AST) -> ast.AST:
        return node

    visit_For = visit_AsyncFor = visit_FunctionDef = visit_AsyncFunctionDef = visit_While
    visit_Lambda = visit_ClassDef = visit_While


class Leaves(ast.NodeTransformer):
    """Writes each ``return`` as the end of a way."""

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        if leaves(node):
            return [node]
        value = node.value or ast.Constant(None)
        end = ast.Return(ast.parse("True, locals()", mode="eval").body)
        end.leaves = True  # type: ignore[attr-defined]
        new = [ast.Assign([ast.Name(OUT, ast.Store())], value), end]
        return [ast.copy_location(x, node) for x in new]

    def visit_FunctionDef(self, node: ast.AST) -> ast.AST:
        return node

    visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = visit_FunctionDef


def listed(node: ast.AST | list) -> list:
    """Returns the nodes that take the place of one."""
    return node if isinstance(node, list) else [node]


def own(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yields the nodes of statements that no loop or function in them owns, in their order."""
    for node in body:
        yield node
        if not isinstance(node, (*SCOPES, *LOOPS)):
            yield from own([*ast.iter_child_nodes(node)])  # type: ignore[list-item]


def holds_return(statement: ast.stmt) -> bool:
    """Returns whether a statement may end the function."""
    return any(isinstance(x, ast.Return) for x in own([statement]))


def falls_through(way: list[ast.stmt]) -> bool:
    """Returns whether what follows these statements may run after them."""
    if not way:
        return True
    last = way[-1]
    if isinstance(last, ast.If):
        return falls_through(last.body) or falls_through(last.orelse)
    return not isinstance(last, (ast.Return, ast.Raise))
