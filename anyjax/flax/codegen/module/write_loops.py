"""A loop's statements: ``for layer in self.layers: x = x + layer(norm(x))``."""

from __future__ import annotations

import ast

from anyjax.flax.codegen.module.steps import Loop
from anyjax.flax.codegen.module.variables import Variables
from anyjax.flax.codegen.python.syntax import (
    free_name,
    name_of,
    names_loaded,
    names_stored,
    replaced,
    target,
)
from anyjax.flax.codegen.python.templates import attribute, variable


class LoopNotWritable(Exception):
    """Raised for a loop whose modules differ in their inputs, or are not of this module."""


def is_name(expr: ast.expr, name: str) -> bool:
    """Returns whether an expression is this variable."""
    return isinstance(expr, ast.Name) and expr.id == name


def for_statement(loop: Loop, body: Variables, inner: list[ast.stmt]) -> ast.stmt:
    """Returns the statement; modules of the second round go by their names in the loop."""
    if not all(f"{x}.".startswith(body.block.prefix) for x in loop.lists):
        raise LoopNotWritable
    homes = [body.block.inner(x) for x in loop.lists]
    used_names = names_loaded(*inner) | names_stored(*inner)
    used_names |= {name for name, node in body.bound.items() if body.reads_left[node] > 0}
    names: list[str] = []
    author_names = _author_names(loop, body)
    for i, home in enumerate(homes):
        name = author_names[i] if len(author_names) == len(homes) else _item_name(home)
        names.append(free_name(name, used_names | {*names}))
    begins, count = list(loop.lists.values()), len(loop.rounds)
    lists = [_list_expression(home, begin, count, body) for home, begin in zip(homes, begins)]
    swap = {ast.dump(_item(h, i + 1)): name_of(name) for h, i, name in zip(homes, begins, names)}
    by_name = lambda x: swap.get(ast.dump(x)) if isinstance(x, ast.Subscript) else None
    inner = [replaced(x, by_name) for x in inner]
    if len(names) == 1:
        return ast.For(target(names[0]), lists[0], inner, [], lineno=0)
    return ast.For(target(names), ast.Call(name_of("zip"), lists, []), inner, [], lineno=0)


def _item(home: str, place: int) -> ast.expr:
    return attribute(f"{home}.{place}" if home else str(place))


def _list_expression(home: str, begin: int, count: int, body: Variables) -> ast.expr:
    """Returns the list, or the slice of it that the loop takes."""
    list_expr = _item(home, 0).value  # type: ignore[attr-defined]
    container = body.block.module.get_submodule(home) if home else body.block.module
    # each under all its numbers
    members = (*container._modules, *container._parameters, *container._buffers)
    places = [int(x) for x in members if x.isdigit()]
    size = max(places) + 1  # what is written for a number that is missing is None
    if not begin and size == count == len(members):
        return list_expr
    start = ast.Constant(begin) if begin else None
    stop = ast.Constant(begin + count) if begin + count < size else None
    return ast.Subscript(list_expr, ast.Slice(start, stop), ast.Load())


def _author_names(loop: Loop, body: Variables) -> list[str]:
    """Returns the author's names for the modules of a loop."""
    if body.forward is None:
        return []
    lines = {s.line for step in loop.written_round if (s := body.statement_of(step))}
    for x in ast.walk(body.forward.tree):
        if isinstance(x, ast.For) and any(x.lineno < n <= (x.end_lineno or 0) for n in lines):
            items = x.target
            if isinstance(items, ast.Tuple) and ast.unparse(x.iter).startswith("enumerate"):
                items = items.elts[-1]
            targets = items.elts if isinstance(items, ast.Tuple) else [items]
            return [variable(p.id) for p in targets if isinstance(p, ast.Name)]
    return []


def _item_name(home: str) -> str:
    name = home.rpartition(".")[2]
    return variable(name[:-1] if name.endswith("s") and len(name) > 2 else "layer")
