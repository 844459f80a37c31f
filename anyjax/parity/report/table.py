"""The table of a report in a terminal: the worst parts, and all others by branch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from anyjax.compare.judge import Comparison
from anyjax.tables import aligned

ROWS = 12  # parts with a row of their own
BRANCHES = 8  # lines of others
NUMBERS = range(1, 7)  # columns
DEPTH = 3  # names in the path of a branch


def lines(parts: Sequence[Comparison], unit: str) -> Iterator[str]:
    """Yields the lines: the worst parts first, then branches of others, whose numbers are folded.

    Args:
      parts: modules, nodes or operators.
      unit: their name, in the plural.
    """
    ranked = sorted(parts, key=lambda x: -x.excess)
    yield from aligned(cells(ranked[:ROWS], unit), NUMBERS)
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
    yield from aligned(rows[:BRANCHES], NUMBERS)
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
