"""A module as data: regions of operations whose operands are numbered values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Operation:
    """One operation, with the arguments of its lowering.

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
        """Yields the numbers of the values that it needs, in its regions too."""
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
    """A body: numbers of its inputs, operations in order, numbers of its outputs.

    ``outer`` has the numbers of the values that it reads of surrounding regions.
    """

    inputs: list[int]
    types: list[Any]
    operations: list[Operation] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    outer: list[int] = field(default_factory=list)

    def mark_last_uses(self) -> None:
        """Notes where values are used last: outside of ``jit`` they are freed early."""
        used_later = {*self.outputs, *self.outer, *self.inputs}
        for operation in reversed(self.operations):
            for number in operation.reads():
                if number not in used_later:
                    used_later.add(number)
                    operation.last_use.append(number)


@dataclass(eq=False)
class Module:
    """Functions by name; ``main`` is called.

    ``globals`` has, for each function, the arguments that no caller passes: place -> meaning.
    """

    functions: dict[str, Region]
    name: str
    globals: dict[str, dict[int, str]] = field(default_factory=dict)
