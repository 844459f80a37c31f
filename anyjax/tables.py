"""Tables as text: aligned for a terminal, and in Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def aligned(rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Returns a line for each row, with columns as wide as their longest cell.

    Args:
      rows: cells; a header is a row, too.
      right: columns of numbers.

    Example:
      >>> aligned([("bias", "8"), ("weight", "128")], right=[1])
      ['bias      8', 'weight  128']
    """
    rows = [*rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    cell = lambda i, x: x.rjust(widths[i]) if i in right else x.ljust(widths[i])
    return ["  ".join(cell(i, x) for i, x in enumerate(row)).rstrip() for row in rows]


def markdown(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()
) -> str:
    """Returns a table in Markdown; see ``aligned``.

    Example:
      >>> print(markdown(["name", "size"], [("bias", "8")], right=[1]))
      | name | size |
      | --- | ---: |
      | bias | 8 |
    """
    rule = ["---:" if i in right else "---" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])
