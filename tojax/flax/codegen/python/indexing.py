"""Chains of slices, picks and new dimensions as one subscript: ``x[:, None, 2:]``."""

from __future__ import annotations

import ast
from typing import Any

from tojax.flax.codegen.python.templates import expression

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
        """Where the output's dimension stands among the entries; None where it is past them."""
        found = [i for i, x in enumerate(self.entries) if x == "new" or isinstance(x, tuple)]
        return found[dim] if dim < len(found) else None

    def new(self, dim: int) -> ast.expr:
        """With a dimension of size 1 there."""
        place = self._place(dim)
        entries = list(self.entries)
        entries.insert(len(entries) if place is None else place, "new")
        return Index(self.base, entries).expression()

    def cut(self, dim: int, start, stop, step) -> ast.expr:
        """With that dimension sliced."""
        if (start, stop, step) == FULL:
            return self.expression()
        return self._replaced(dim, (start, stop, step))

    def at(self, dim: int, index) -> ast.expr:
        """With one place of that dimension."""
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
        """The subscript, which can be indexed further; the base where nothing is left to do."""
        entries = list(self.entries)
        while entries and entries[-1] == FULL:
            entries.pop()
        if not entries:
            return self.base
        parts = [_entry(x) for x in entries]
        full = next(i for i, x in enumerate(entries) if x != FULL)
        if full > 1 and len(entries) == len(self.entries):
            parts[:full] = [ast.Constant(...)]
        found = ast.Subscript(
            self.base, parts[0] if len(parts) == 1 else ast.Tuple(parts, ast.Load()), ast.Load()
        )
        found.index = self  # type: ignore[attr-defined]
        return found


def indexed(base: ast.expr, rank: int) -> Index:
    """What is indexed so far, or nothing of an expression of this rank."""
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
