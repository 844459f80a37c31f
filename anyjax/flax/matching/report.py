"""The report of ``load_into``: which tensor fills which variable, and how it was decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anyjax.tables import aligned


@dataclass(frozen=True)
class Match:
    """One variable that was filled.

    Attributes:
      flax: its path.
      torch: the tensor, or a slice of one.
      layout: how its axes were reordered.
      how: "name", "order" (numbered alike), "shape" (nothing else fits), "agreement" (the outputs
        are equal only so), "convention" (a square matrix, as the others), or "given" (by the user).
      cast: "float32 -> bfloat16" where the dtype changed, else "".
    """

    flax: str
    torch: str
    layout: str
    how: str
    cast: str = ""


@dataclass(frozen=True)
class Report:
    """A report of what ``load_into`` did; prints as a table.

    Attributes:
      matches: the variables that were filled.
      left_out: (torch name, reason) of tensors that inference does not need, or that are tied.
      stays: flax variables that keep their values.
      notes: possible reasons of different outputs, such as another epsilon than torch's.
      checked: the comparison of outputs, in words.

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
        lines = aligned(rows)
        lines += [f"left out: {name} ({why})" for name, why in self.left_out]
        lines += [f"stays as it was: {name}" for name in self.stays]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, f"checked: {self.checked}"])
