"""The table of a report in a terminal: the worst parts, and all others by branch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from anyjax.parity.judge.compare import Comparison

ROWS = 12  # parts with a row of their own
BRANCHES = 8  # lines of others
DEPTH = 3  # names in the path of a branch


def lines(parts: Sequence[Comparison], unit: str) -> Iterator[str]:
    """Yields the lines: the worst parts first, then branches of others, whose numbers are folded.

    Args:
      parts: modules, nodes or operators.
      unit: their name, in the plural.
    """
    ranked = sorted(parts, key=lambda x: -x.excess)
    yield from _aligned(cells(ranked[:ROWS], unit))
    rest = {id(x) for x in ranked[ROWS:]}
    if not rest:
        return
    yield f"and {len(rest)} {unit} with less:"
    named = sorted((_branch(x.path), i, x) for i, x in enumerate(parts) if id(x) in rest)
    branches = [(k, [x for *_, x in group]) for k, group in groupby(named, key=lambda x: x[0])]
    branches.sort(key=lambda x: -len(x[1]))
    rows = [
        (f"  {k}", f"{len(xs)}", f"adds at most {max(map(_added, xs)):.1e}") for k, xs in branches
    ]
    yield from _aligned(rows[:BRANCHES])
    if rows[BRANCHES:]:
        yield f"  and {len(rows) - BRANCHES} more branches"


def cells(parts: Sequence[Comparison], unit: str) -> list[tuple[str, ...]]:
    """Returns the header of a table, and a row for each part."""
    header = (unit[:-1], "adds", "of it rounding", "inherits", "cosine", "ulps", "")
    return [header, *map(_cells, parts)]


def _branch(path: str) -> str:
    """Returns the first names of a path, a star for each number.

    Example:
      >>> _branch("model.layers.3.mlp.gate_proj")
      'model.layers.*'
    """
    names = re.split(r"(?<=[./])", re.sub(r"\d+", "*", path))[:DEPTH]
    return "".join(names).rstrip("./") or "(output)"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields rows with aligned columns, the first one to the left."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for first, *cells in rows:
        right = (x.rjust(w) for x, w in zip(cells, widths[1:]))
        yield "  ".join([first.ljust(widths[0]), *right]).rstrip()


def _added(row: Comparison) -> float:
    return row.added.rms / row.scale if row.scale else row.added.rms


def _cells(row: Comparison) -> tuple[str, ...]:
    relative = lambda x: f"{x / row.scale if row.scale else x:.1e}"
    return (
        row.path or "(output)",
        relative(row.added.rms),
        relative(row.rounding),
        relative(row.inherited),
        f"{row.total.cosine:.6f}",
        f"{row.total.ulps:.0f}",
        row.fault,
    )
