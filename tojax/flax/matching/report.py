"""What was matched with what, and why: a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Match:
    """One variable that was filled.

    Attributes:
      flax: its path.
      torch: the tensor, or the part of one.
      layout: what was done to the axes.
      how: "name", "order" (numbered alike), "shape" (nothing else fits), "agreement" (the outputs
        are equal only so), or "given".
      cast: "float32 -> bfloat16" where the dtype changed, else "".
    """

    flax: str
    torch: str
    layout: str
    how: str
    cast: str = ""


@dataclass(frozen=True)
class Report:
    """What ``load_into`` did; printed, a table.

    Attributes:
      matches: every variable that was filled.
      left_out: names of torch's that no inference needs, or that are tied to others, with the
        reason.
      stays: flax variables that keep their values.
      notes: what may explain different outputs, such as an epsilon that is not torch's.
      checked: what was compared, in words.

    Example:
      >>> report = Report((Match("fc/kernel", "fc.weight", "transposed", "name"),), checked="no")
      >>> print(report)
      flax       torch      layout      decided by  cast
      fc/kernel  fc.weight  transposed  name
      checked: no
    """

    matches: tuple[Match, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    stays: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    checked: str = ""

    def __iter__(self) -> Iterator[Match]:
        return iter(self.matches)

    def __getitem__(self, flax: str) -> Match:
        return next(m for m in self.matches if m.flax == flax)

    def __str__(self) -> str:
        rows = [("flax", "torch", "layout", "decided by", "cast")]
        rows += [(m.flax, m.torch, m.layout, m.how, m.cast) for m in self.matches]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ["  ".join(x.ljust(w) for x, w in zip(row, widths)).rstrip() for row in rows]
        lines += [f"left out: {name} ({why})" for name, why in self.left_out]
        lines += [f"stays as it was: {name}" for name in self.stays]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, f"checked: {self.checked}"])
