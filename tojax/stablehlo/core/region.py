"""A module as data: regions of operations whose operands are numbered values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Operation:
    """One operation: each argument of its lowering as what it stands for.

    ``arguments`` holds pairs: ("value", number), ("values", numbers), ("known", anything),
    ("region", Region), ("regions", [Region]).
    """

    name: str
    arguments: list[tuple[str, Any]]
    outputs: list[int]
    types: list[Any]
    where: str = ""
    last_use: list[int] = field(default_factory=list)

    def reads(self) -> Iterator[int]:
        """The values that it needs, those of its regions too."""
        for kind, what in self.arguments:
            if kind == "value":
                yield what
            elif kind == "values":
                yield from what
            elif kind == "region":
                yield from what.outer
            elif kind == "regions":
                for region in what:
                    yield from region.outer


@dataclass(eq=False)
class Region:
    """A body: values that come in, operations in order, values that go out.

    ``outer`` numbers the values of the surrounding regions that it reads.
    """

    inputs: list[int]
    types: list[Any]
    operations: list[Operation] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    outer: list[int] = field(default_factory=list)

    def mark_last_uses(self) -> None:
        """So that what an evaluation outside of ``jit`` holds is freed as early as it can be."""
        kept = {*self.outputs, *self.outer, *self.inputs}
        for operation in reversed(self.operations):
            for number in operation.reads():
                if number not in kept:
                    kept.add(number)
                    operation.last_use.append(number)


@dataclass(eq=False)
class Module:
    """Functions by name; ``main`` is called.

    ``globals`` has, for each function, the arguments that no caller gives: place -> meaning.
    """

    functions: dict[str, Region]
    name: str
    globals: dict[str, dict[int, str]] = field(default_factory=dict)
