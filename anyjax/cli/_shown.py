"""Output of the verbs: tables, progress and JSON."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

from rich.console import Console, JustifyMethod
from rich.progress import Progress
from rich.status import Status
from rich.table import Table
from rich.text import Text

WIDE = 1000  # columns of output that is no terminal: no line is cut
NAMES = 0.4  # of a terminal's width: the most that the first column of a table takes


def console() -> Console:
    """Returns a console on standard output: no text is markup, lines are cut on a terminal only."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(highlight=False, markup=False, width=width)


def heading(name: str, remark: str) -> None:
    """Prints a name in bold, and a remark."""
    console().print(Text.assemble((name, "bold"), remark))


def has_unicode(stream: TextIO) -> bool:
    """Returns True if a stream can show all characters."""
    return (getattr(stream, "encoding", None) or "").lower().startswith("utf")


def progress(text: str) -> Status:
    """Returns a line on standard error that says what is being done; on a terminal only."""
    spinner = "dots" if has_unicode(sys.stderr) else "line"
    return Console(stderr=True).status(text, spinner=spinner)


@contextlib.contextmanager
def steps(first: str) -> Iterator[Callable[[str, int, int], None]]:
    """Shows a bar on standard error, on a terminal only; yields what is called with the name of a
    step, its number and their number.
    """
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(first)
        yield lambda text, i, count: bar.update(task, description=text, completed=i, total=count)


class NamesFirst(Table):
    """A table whose names, in the first column, are folded where they do not fit."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Adds a row; the first cell is a name."""
        name, *numbers = cells
        text = name if isinstance(name, Text) else Text(name)
        text.overflow, text.no_wrap = "fold", False
        super().add_row(text, *numbers, **options)


def table(header: Sequence[str], rows: Iterable[Sequence[str]] = (), **options: Any) -> Table:
    """Makes a table.

    Args:
      header: a name for each column.
      rows: cells.
      **options: ``right`` has the columns of numbers; others are those of ``rich.table.Table``.
    """
    right = options.pop("right", ())
    result = NamesFirst(title_justify="left", **options)
    widest = int(NAMES * console().width) if sys.stdout.isatty() else None
    for i, name in enumerate(header):
        justify: JustifyMethod = "right" if i in right else "left"
        limit = widest if i == 0 else None
        result.add_column(name, justify=justify, no_wrap=i == 0, max_width=limit, overflow="fold")
    for row in rows:
        result.add_row(*row)
    return result


def as_json(value: object) -> None:
    """Prints a value as JSON; NaN and infinities, which JSON has not, are null."""
    print(json.dumps(_finite(value), indent=1, default=str, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _finite(x) for k, x in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(x) for x in value]
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        value = value.item()  # a scalar of numpy
    return None if isinstance(value, float) and not math.isfinite(value) else value


def timed(call: Callable[[], object]) -> tuple[float, Any]:
    """Calls a function, and returns (seconds, result)."""
    began = time.perf_counter()
    out = call()
    return time.perf_counter() - began, out


def speed(mine: float, other: float) -> str:
    """Describes how the first time compares with the second.

    Example:
      >>> speed(1.0, 240.0), speed(3.0, 2.0)
      ('240 times as fast', '1.5 times as slow')
    """
    ratio, word = (other / mine, "fast") if mine <= other else (mine / other, "slow")
    return f"{ratio:.1f} times as {word}" if ratio < 10 else f"{ratio:.0f} times as {word}"
