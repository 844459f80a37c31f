"""A loop's statements: ``for layer in self.layers: x = x + layer(norm(x))``."""

from __future__ import annotations

import ast
from typing import Any

from tojax.flax.codegen.module.find_loops import Loop
from tojax.flax.codegen.python.templates import attribute, name_of, variable


class LoopNotWritable(Exception):
    """Raised for a loop whose modules differ in their inputs, or are not of this module."""


def write_loop(loop: Loop, body: Any) -> None:
    """Writes a loop into a body; the second round is the one that is written."""
    names = _named_carries(loop, body)
    outer, body.statements = body.statements, []
    body.write_steps(loop.written_round)
    ends = [(updated, body.value(updated)) for _, _, updated, _ in loop.carries]
    differing = [(name, x) for name, (_, x) in zip(names, ends) if not _is_name(x, name)]
    if differing:
        stored: list[ast.expr] = [ast.Name(name, ast.Store()) for name, _ in differing]
        target = stored[0] if len(differing) == 1 else ast.Tuple(stored, ast.Store())
        values = [x for _, x in differing]
        value = values[0] if len(differing) == 1 else ast.Tuple(values, ast.Load())
        body.statements.append(ast.Assign([target], value, lineno=0))
    inner, body.statements = body.statements, outer
    for steps in (loop.rounds[0], *loop.rounds[2:]):
        for step in steps:
            body.writer.set_reads(step, body)
    for steps_ in zip(*loop.rounds):
        blocks = [step.block for step in steps_ if step.block is not None]
        if any(body.writer.interface(x) != body.writer.interface(blocks[0]) for x in blocks[1:]):
            raise LoopNotWritable
        body.writer.loops.append([x.path for x in blocks])
    for x in loop.outside:
        body.count_read(x)
    for name, (_, _, updated, end) in zip(names, loop.carries):
        body.names[end] = body.names[updated] = name
        body.bound[name] = end
        body.writer.labels.setdefault(end, name)
    body.statements.append(_for_statement(loop, body, inner))


def _named_carries(loop: Loop, body: Any) -> list[str]:
    """Names the carried values, and assigns their initial values."""
    names: list[str] = []
    for initial, carried, updated, _ in loop.carries:
        maker = next(step for step in loop.written_round if updated in step.makes)
        statement = body.statement_of(maker)
        targets = [variable(x) for x in statement.targets if x] if statement else []
        first = body.value(initial)
        default_name = first.id if isinstance(first, ast.Name) else "x"
        name = targets[0] if len(targets) == 1 and targets[0] not in names else default_name
        while name in names:
            name += "_"
        if not _is_name(first, name):
            body.rename_live_value(name, first)
            body.statements.append(ast.Assign([ast.Name(name, ast.Store())], first, lineno=0))
        elif body.reads_left[initial] > 0:
            body.rename_live_value(name, first)
        names.append(name)
        body.names[carried], body.bound[name] = name, carried
    return names


def _is_name(expr: ast.expr, name: str) -> bool:
    return isinstance(expr, ast.Name) and expr.id == name


def _for_statement(loop: Loop, body: Any, inner: list[ast.stmt]) -> ast.stmt:
    """Returns the statement; modules of the second round go by their names in the loop."""
    path = body.block.path
    if path and not all(x == path or x.startswith(f"{path}.") for x in loop.lists):
        raise LoopNotWritable
    homes = [x[len(path) + 1 :] if path else x for x in loop.lists]
    used_names = {x.id for s in inner for x in ast.walk(s) if isinstance(x, ast.Name)}
    used_names |= {name for name, node in body.bound.items() if body.reads_left[node] > 0}
    names: list[str] = []
    author_names = _author_names(loop, body)
    for i, home in enumerate(homes):
        name = author_names[i] if len(author_names) == len(homes) else _item_name(home)
        while name in used_names | set(names):
            name += "_"
        names.append(name)
    begins, count = list(loop.lists.values()), len(loop.rounds)
    lists = [_list_expression(home, begin, count, body) for home, begin in zip(homes, begins)]
    swap = {ast.dump(_item(h, i + 1)): name for h, i, name in zip(homes, begins, names)}
    inner = [_ItemsByName(swap).visit(x) for x in inner]
    stored: list[ast.expr] = [ast.Name(x, ast.Store()) for x in names]
    if len(names) == 1:
        return ast.For(stored[0], lists[0], inner, [], lineno=0)
    zipped = ast.Call(name_of("zip"), lists, [])
    return ast.For(ast.Tuple(stored, ast.Store()), zipped, inner, [], lineno=0)


def _item(home: str, place: int) -> ast.expr:
    return attribute(f"{home}.{place}" if home else str(place))


def _list_expression(home: str, begin: int, count: int, body: Any) -> ast.expr:
    """Returns the list, or the slice of it that the loop takes."""
    list_expr = _item(home, 0).value  # type: ignore[attr-defined]
    container = body.block.module.get_submodule(home) if home else body.block.module
    members = (
        *container._modules,
        *container._parameters,
        *container._buffers,
    )  # each under all its numbers
    places = [int(x) for x in members if x.isdigit()]
    size = max(places) + 1  # what is written for a number that is missing is None
    if not begin and size == count == len(members):
        return list_expr
    start = ast.Constant(begin) if begin else None
    stop = ast.Constant(begin + count) if begin + count < size else None
    return ast.Subscript(list_expr, ast.Slice(start, stop), ast.Load())


def _author_names(loop: Loop, body: Any) -> list[str]:
    """Returns the author's names for the modules of a loop."""
    if body.forward is None:
        return []
    lines = {s.line for step in loop.written_round if (s := body.statement_of(step))}
    for x in ast.walk(body.forward.tree):
        if isinstance(x, ast.For) and any(x.lineno < n <= (x.end_lineno or 0) for n in lines):
            target = x.target
            if isinstance(target, ast.Tuple) and ast.unparse(x.iter).startswith("enumerate"):
                target = target.elts[-1]
            targets = target.elts if isinstance(target, ast.Tuple) else [target]
            return [variable(p.id) for p in targets if isinstance(p, ast.Name)]
    return []


def _item_name(home: str) -> str:
    name = home.rpartition(".")[2]
    return variable(name[:-1] if name.endswith("s") and len(name) > 2 else "layer")


class _ItemsByName(ast.NodeTransformer):
    """Replaces ``self.layers[1]`` by its name in the loop."""

    def __init__(self, swap: dict[str, str]):
        self.swap = swap

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        name = self.swap.get(ast.dump(node))
        return name_of(name) if name else self.generic_visit(node)  # type: ignore[return-value]
