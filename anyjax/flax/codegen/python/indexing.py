"""Chains of slices, picks and new dimensions as one subscript: ``x[:, None, 2:]``."""

from __future__ import annotations

import ast
from typing import Any

from anyjax.flax.codegen.python.templates import expression

FULL = (None, None, 1)


class Index:
    """A subscript in the making.

    Attributes:
      base: what is indexed.
      entries: one for each dimension of ``base`` ((start, stop, step) or an index), and "new".
    """

    def __init__(self, base: ast.expr, entries: list[Any]):
        self.base, self.entries = base, entries

    def _place(self, dim: int) -> int | None:
        """Returns the place of the output's dimension among the entries; None where it is past
        them.
        """
        positions = [i for i, x in enumerate(self.entries) if x == "new" or isinstance(x, tuple)]
        return positions[dim] if dim < len(positions) else None

    def new(self, dim: int) -> ast.expr:
        """Adds a dimension of size 1."""
        place = self._place(dim)
        entries = list(self.entries)
        entries.insert(len(entries) if place is None else place, "new")
        return Index(self.base, entries).expression()

    def cut(self, dim: int, start, stop, step) -> ast.expr:
        """Slices a dimension."""
        if (start, stop, step) == FULL:
            return self.expression()
        return self._replaced(dim, (start, stop, step))

    def at(self, dim: int, index) -> ast.expr:
        """Takes one place of a dimension."""
        return self._replaced(dim, index if isinstance(index, int) else expression(index))

    def _replaced(self, dim: int, entry) -> ast.expr:
        place = self._place(dim)
        if place is None or self.entries[place] != FULL:  # sliced before: another subscript
            rank = sum(x == "new" or isinstance(x, tuple) for x in self.entries)
            return Index(self.expression(), [FULL] * rank)._replaced(dim, entry)
        entries = list(self.entries)
        entries[place] = entry
        return Index(self.base, entries).expression()

    def expression(self) -> ast.expr:
        """Returns the subscript, which can be indexed further; the base if nothing is indexed."""
        entries = list(self.entries)
        while entries and entries[-1] == FULL:
            entries.pop()
        if not entries:
            return self.base
        elements = [_entry(x) for x in entries]
        full = next(i for i, x in enumerate(entries) if x != FULL)
        if full > 1 and len(entries) == len(self.entries):
            elements[:full] = [ast.Constant(...)]
        subscript = ast.Subscript(
            self.base,
            elements[0] if len(elements) == 1 else ast.Tuple(elements, ast.Load()),
            ast.Load(),
        )
        subscript.index = self  # type: ignore[attr-defined]
        return subscript


def indexed(base: ast.expr, rank: int) -> Index:
    """Returns the index that an expression is so far, or an empty one of this rank."""
    return getattr(base, "index", None) or Index(base, [FULL] * rank)


def _entry(entry) -> ast.expr:
    if entry == "new":
        return ast.Constant(None)
    if not isinstance(entry, tuple):
        return expression(entry)
    start, stop, step = entry
    return ast.Slice(
        None if start is None else expression(start),
        None if stop is None else expression(stop),
        None if step == 1 else expression(step),
    )
