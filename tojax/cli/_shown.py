"""Output of the verbs: tables, times and JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

WIDE = 1000  # columns of output that is no terminal: no line is cut


def console() -> Console:
    """Returns a console on standard output; lines are cut on a terminal only."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)


def table(header: Sequence[str], rows: Iterable[Sequence[str]] = (), **options: Any) -> Table:
    """Makes a table; its first column, the names, is cut last.

    Args:
      header: a name for each column.
      rows: cells.
      **options: ``right`` has the columns of numbers; others are those of ``rich.table.Table``.
    """
    right = options.pop("right", ())
    result = Table(title_justify="left", **options)
    for i, name in enumerate(header):
        result.add_column(name, justify="right" if i in right else "left", no_wrap=i == 0)
    for row in rows:
        result.add_row(*row)
    return result


def as_json(value: object) -> None:
    """Prints a value as JSON."""
    print(json.dumps(value, indent=1, default=str))


def timed(call: Callable[[], object]) -> tuple[float, Any]:
    """Calls a function, and returns (seconds, result)."""
    began = time.perf_counter()
    out = call()
    return time.perf_counter() - began, out


def duration(seconds: float) -> str:
    """Formats a time in a suitable unit.

    Example:
      >>> duration(0.00234), duration(2.5)
      ('2.34 ms', '2.50 s')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.2f} ms" if seconds < 0.1 else f"{1e3 * seconds:.0f} ms"


def speed(mine: float, other: float) -> str:
    """Describes how the first time compares with the second.

    Example:
      >>> speed(1.0, 240.0), speed(3.0, 2.0)
      ('240 times as fast', '1.5 times as slow')
    """
    ratio, word = (other / mine, "fast") if mine <= other else (mine / other, "slow")
    return f"{ratio:.1f} times as {word}" if ratio < 10 else f"{ratio:.0f} times as {word}"
