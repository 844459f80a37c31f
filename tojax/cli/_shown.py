"""How the verbs print: tables, times and JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

WIDE = 1000  # of what is no terminal: whoever reads it wants all of a line


def console() -> Console:
    """Standard output; nothing is cut where it is no terminal."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)


def table(header: Sequence[str], rows: Iterable[Sequence[str]] = (), **how: Any) -> Table:
    """A table whose first column, the names, is the last one to be cut.

    Args:
      header: a name for each column.
      rows: cells.
      **how: ``right`` has the columns of numbers, the rest goes to the table.
    """
    right = how.pop("right", ())
    made = Table(title_justify="left", **how)
    for i, name in enumerate(header):
        made.add_column(name, justify="right" if i in right else "left", no_wrap=i == 0)
    for row in rows:
        made.add_row(*row)
    return made


def as_json(told: Any) -> None:
    """Prints it, and nothing else."""
    print(json.dumps(told, indent=1, default=str))


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds, result)"""
    began = time.perf_counter()
    out = call()
    return time.perf_counter() - began, out


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    Example:
      >>> duration(0.00234), duration(2.5)
      ('2.34 ms', '2.50 s')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.2f} ms" if seconds < 0.1 else f"{1e3 * seconds:.0f} ms"


def speed(mine: float, other: float) -> str:
    """How the first time compares with the second one.

    Example:
      >>> speed(1.0, 240.0), speed(3.0, 2.0)
      ('240 times as fast', '1.5 times as slow')
    """
    ratio, word = (other / mine, "fast") if mine <= other else (mine / other, "slow")
    return f"{ratio:.1f} times as {word}" if ratio < 10 else f"{ratio:.0f} times as {word}"
