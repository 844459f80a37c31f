"""A loop's statements: ``for layer in self.layers: x = x + layer(norm(x))``."""

from __future__ import annotations

import ast
from typing import Any

from tojax.flax.codegen.module.find_loops import Roll
from tojax.flax.codegen.python.templates import attribute, name_of, variable


class Unrollable(Exception):
    """A loop whose modules take their inputs in different ways, or are not of this module."""


def write_loop(roll: Roll, body: Any) -> None:
    """Has a body run through the rounds; the second one is what is written."""
    names = _carried(roll, body)
    outer, body.statements = body.statements, []
    body.go(roll.second)
    ends = [(made, body.value(made)) for _, _, made, _ in roll.carries]
    off = [(name, x) for name, (_, x) in zip(names, ends) if not _is(x, name)]
    if off:
        stored: list[ast.expr] = [ast.Name(name, ast.Store()) for name, _ in off]
        target = stored[0] if len(off) == 1 else ast.Tuple(stored, ast.Store())
        given = [x for _, x in off]
        value = given[0] if len(off) == 1 else ast.Tuple(given, ast.Load())
        body.statements.append(ast.Assign([target], value, lineno=0))
    inner, body.statements = body.statements, outer
    for steps in (roll.rounds[0], *roll.rounds[2:]):
        for step in steps:
            body.write.noted(step, body)
    for same in zip(*roll.rounds):
        blocks = [step.block for step in same if step.block is not None]
        if any(body.write.interface(x) != body.write.interface(blocks[0]) for x in blocks[1:]):
            raise Unrollable
        body.write.loops.append([x.path for x in blocks])
    for x in roll.outside:
        body.used(x)
    for name, (_, _, made, end) in zip(names, roll.carries):
        body.names[end] = body.names[made] = name
        body.bound[name] = end
        body.write.labels.setdefault(end, name)
    body.statements.append(_for(roll, body, inner))


def _carried(roll: Roll, body: Any) -> list[str]:
    """Names the values that go from round to round, and sets them to what comes in."""
    names: list[str] = []
    for entering, held, made, _ in roll.carries:
        maker = next(step for step in roll.second if made in step.makes)
        said = body.said(maker)
        theirs = [variable(x) for x in said.targets if x] if said else []
        first = body.value(entering)
        known = first.id if isinstance(first, ast.Name) else "x"
        name = theirs[0] if len(theirs) == 1 and theirs[0] not in names else known
        while name in names:
            name += "_"
        if not _is(first, name):
            body.vacate(name, first)
            body.statements.append(ast.Assign([ast.Name(name, ast.Store())], first, lineno=0))
        elif body.left[entering] > 0:
            body.vacate(name, first)
        names.append(name)
        body.names[held], body.bound[name] = name, held
    return names


def _is(expr: ast.expr, name: str) -> bool:
    return isinstance(expr, ast.Name) and expr.id == name


def _for(roll: Roll, body: Any, inner: list[ast.stmt]) -> ast.stmt:
    """The statement; the modules of the second round go by their names in the loop."""
    path = body.block.path
    if path and not all(x == path or x.startswith(f"{path}.") for x in roll.lists):
        raise Unrollable
    homes = [x[len(path) + 1 :] if path else x for x in roll.lists]
    taken = {x.id for s in inner for x in ast.walk(s) if isinstance(x, ast.Name)}
    taken |= {name for name, node in body.bound.items() if body.left[node] > 0}
    names: list[str] = []
    said = _said(roll, body)
    for i, home in enumerate(homes):
        name = said[i] if len(said) == len(homes) else _single(home)
        while name in taken | set(names):
            name += "_"
        names.append(name)
    begins, count = list(roll.lists.values()), len(roll.rounds)
    lists = [_listed(home, begin, count, body) for home, begin in zip(homes, begins)]
    swap = {ast.dump(_first(h, i + 1)): name for h, i, name in zip(homes, begins, names)}
    inner = [_Items(swap).visit(x) for x in inner]
    stored: list[ast.expr] = [ast.Name(x, ast.Store()) for x in names]
    if len(names) == 1:
        return ast.For(stored[0], lists[0], inner, [], lineno=0)
    zipped = ast.Call(name_of("zip"), lists, [])
    return ast.For(ast.Tuple(stored, ast.Store()), zipped, inner, [], lineno=0)


def _first(home: str, place: int) -> ast.expr:
    return attribute(f"{home}.{place}" if home else str(place))


def _listed(home: str, begin: int, count: int, body: Any) -> ast.expr:
    """The list, or those of its modules that the loop takes."""
    found = _first(home, 0).value  # type: ignore[attr-defined]
    whole = body.block.module.get_submodule(home) if home else body.block.module
    held = (*whole._modules, *whole._parameters, *whole._buffers)  # each under all its numbers
    places = [int(x) for x in held if x.isdigit()]
    size = max(places) + 1  # what is written for a number that is missing is None
    if not begin and size == count == len(held):
        return found
    start = ast.Constant(begin) if begin else None
    stop = ast.Constant(begin + count) if begin + count < size else None
    return ast.Subscript(found, ast.Slice(start, stop), ast.Load())


def _said(roll: Roll, body: Any) -> list[str]:
    """The author's names for the modules of a loop."""
    if body.forward is None:
        return []
    lines = {s.line for step in roll.second if (s := body.said(step))}
    for x in ast.walk(body.forward.tree):
        if isinstance(x, ast.For) and any(x.lineno < n <= (x.end_lineno or 0) for n in lines):
            target = x.target
            if isinstance(target, ast.Tuple) and ast.unparse(x.iter).startswith("enumerate"):
                target = target.elts[-1]
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            return [variable(p.id) for p in parts if isinstance(p, ast.Name)]
    return []


def _single(home: str) -> str:
    name = home.rpartition(".")[2]
    return variable(name[:-1] if name.endswith("s") and len(name) > 2 else "layer")


class _Items(ast.NodeTransformer):
    """``self.layers[1]`` by its name in the loop."""

    def __init__(self, swap: dict[str, str]):
        self.swap = swap

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        name = self.swap.get(ast.dump(node))
        return name_of(name) if name else self.generic_visit(node)  # type: ignore[return-value]
