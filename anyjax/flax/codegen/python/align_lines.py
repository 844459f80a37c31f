"""Lines of constructors that differ in their numbers and flags alone, as one line."""

from __future__ import annotations

import ast
import copy
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anyjax.flax.codegen.python.syntax import name_of, replaced, replaced_by_id

DEFAULTS = {"strides": 1, "kernel_dilation": 1, "feature_group_count": 1}  # of Flax's layers


@dataclass(eq=False)
class Columns:
    """The values of several kinds of modules where their lines differ.

    Attributes:
      kinds: of each kind, the parameters with their values and the number of modules.
      values: for each new parameter, by kind, a value for each of its modules.
    """

    kinds: list[tuple[dict[str, list[Any]], int]]
    values: dict[str, dict[int, list[Any]]] = field(default_factory=dict)

    def joined(self, lines: list[ast.expr | None]) -> list[ast.expr | None]:
        """Returns the lines, with one line for all that are alike; None stays None."""
        lines = _spelled(lines)
        groups: dict[str, list[int]] = defaultdict(list)
        for i, line in enumerate(lines):
            if line is not None:
                groups[_blanked(line, _among(self.kinds[i][0]))].append(i)
        result: list[ast.expr | None] = [None] * len(lines)
        for group in groups.values():
            aligned = self._aligned({i: lines[i] for i in group})
            for i in group:
                result[i] = aligned
        return result

    def _aligned(self, lines: dict[int, Any]) -> ast.expr:
        """Returns a line for several kinds, with a parameter for each place where they differ."""
        places = [[x for x in ast.walk(line) if _among(self.kinds[i][0])(x)]
                  for i, line in lines.items()]  # fmt: skip
        swap: dict[int, ast.expr] = {}
        for column in zip(*places):
            if len({ast.unparse(x) for x in column}) > 1:
                name = self._parameter(dict(zip(lines, column)))
                swap[id(column[0])] = ast.Name(name, ast.Load())
        return _swapped(next(iter(lines.values())), swap)

    def _parameter(self, column: dict[int, Any]) -> str:
        """Returns the name of the parameter that has these values."""
        values: dict[int, list[Any]] = {}
        for i, x in column.items():
            parameters, count = self.kinds[i]
            values[i] = parameters[x.id] if isinstance(x, ast.Name) else [x.value] * count
        names = [x.id for x in column.values() if isinstance(x, ast.Name)]
        names += [x.hint for x in column.values() if hasattr(x, "hint")]
        names += [f"{names[-1]}_{n}" for n in range(2, 99)]
        name = next(x for x in names if self._fits(x, values))
        self.values.setdefault(name, {}).update(values)
        return name

    def _fits(self, name: str, values: dict[int, list[Any]]) -> bool:
        """Returns whether a parameter of this name has these values, or none yet."""
        values_by_kind = self.values.get(name, {})
        value_of = lambda i, x: values_by_kind.get(i, self.kinds[i][0].get(name, x))
        return all(value_of(i, x) == x for i, x in values.items())


def _spelled(lines: list[ast.expr | None]) -> list[ast.expr | None]:
    """Adds arguments with their defaults to calls that leave them out."""
    calls = [x for x in lines if isinstance(x, ast.Call)]
    heads = {(ast.unparse(x.func), len(x.args)) for x in calls}
    if len(calls) != len([x for x in lines if x is not None]) or len(heads) != 1:
        return lines
    most = max(calls, key=lambda x: len(x.keywords))
    return [x and _with(x, most) for x in lines]  # type: ignore[arg-type]


def _with(call: ast.Call, most: ast.Call) -> ast.Call:
    passed = {x.arg: x for x in call.keywords}
    missing = [x.arg for x in most.keywords if x.arg not in passed]
    order = [x.arg for x in most.keywords]
    if not set(missing) <= set(DEFAULTS) or not set(passed) <= set(order):
        return call
    completed = copy.deepcopy(call)
    for name in missing:
        value = ast.Constant(DEFAULTS[name or ""])
        value.hint, value.kind, value.path = name, "argument", ""  # type: ignore[attr-defined]
        completed.keywords.append(ast.keyword(name, value))
    completed.keywords.sort(key=lambda x: order.index(x.arg))
    return completed


def _among(parameters: dict[str, Any]) -> Callable[[ast.AST], bool]:
    """Returns a test of whether a node may differ: a number or flag, or one of these parameters."""

    def blank(node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return node.id in parameters
        return isinstance(node, ast.Constant) and hasattr(node, "hint")

    return blank


def _swapped(line: ast.expr, swap: dict[int, ast.expr]) -> ast.expr:
    """Returns a copy with other expressions in place of nodes, by their ids."""
    memo = {id(x): x for x in ast.walk(line) if id(x) in swap}  # these are not copied
    return replaced_by_id(copy.deepcopy(line, memo), swap)


def _blanked(line: ast.expr, blank: Callable[[ast.AST], bool]) -> str:
    """Returns a line as text, with what may differ left out."""
    number = lambda x: name_of("number") if blank(x) else None
    return ast.dump(replaced(copy.deepcopy(line), number))


def first_apart(elements: list[ast.expr]) -> ast.expr | None:
    """Returns ``Block(first=i == 0)`` if the flags of the first module alone differ, else None."""
    flags = [[x for x in ast.walk(part_) if _is_flag(x)] for part_ in elements]
    alike = {_blanked(x, _is_flag) for x in elements}
    if len(elements) < 3 or len(alike) > 1:
        return None
    swap: dict[int, ast.expr] = {}
    for column in zip(*flags):
        first, *rest = [x.value for x in column]
        if {*rest} != {rest[0]} or (first != rest[0] and not isinstance(first, bool)):
            return None
        if first != rest[0]:
            text = "i == 0" if first else "i > 0"
            swap[id(column[0])] = ast.parse(text, mode="eval").body
    return _swapped(elements[0], swap) if swap else None


def _is_flag(node: object) -> bool:
    is_flag = isinstance(node, ast.Constant) and isinstance(node.value, (bool, str))
    return is_flag and hasattr(node, "hint")
