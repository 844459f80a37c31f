"""A program with the spec of each of its values: which mesh axes divide which dimension."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tojax.parallel.estimation.divide.nodes import Program

Spec = tuple[tuple[str, ...], ...]  # the mesh axes that divide each dimension


@dataclass
class Divided:
    """A program divided over a mesh.

    Attributes:
      program: its nodes, collectives among them; values have their shapes on all devices together.
      mesh: sizes of the axes.
      specs: the axes that divide each value.
      inner: the divided programs inside of nodes, by the node's number.
      rounds: how often it runs: the length of a loop.
      unknown: operations without a rule.
    """

    program: Program
    mesh: Mapping[str, int]
    specs: dict[int, Spec]
    inner: dict[int, list[Divided]] = field(default_factory=dict)
    rounds: int = 1
    unknown: set[str] = field(default_factory=set)

    def spec_of(self, v: int | None) -> Spec:
        """Returns the spec of a value; literals (None) have no dimensions."""
        return () if v is None else self.specs[v]

    def shape(self, v: int) -> tuple[int, ...]:
        """Returns the shape on one device."""
        value, spec = self.program.values[v], self.specs[v]
        counts = [math.prod(self.mesh[a] for a in axes) for axes in spec]
        return tuple(-(-n // p) for n, p in zip(value.shape, counts, strict=True))

    def bytes(self, v: int) -> int:
        """Returns the bytes on one device."""
        return math.ceil(math.prod(self.shape(v)) * self.program.values[v].itemsize)
