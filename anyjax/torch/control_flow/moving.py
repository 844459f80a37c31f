"""Names and attributes that a statement assigns which values decide, and the tensors among them,
which go in and come out.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import torch
from torch.utils._pytree import tree_unflatten

from anyjax.errors import DataDependent
from anyjax.torch.control_flow import higher_order
from anyjax.torch.control_flow.region import Closed
from anyjax.torch.core import current_trace, diagnostics
from anyjax.torch.core.lifting import array_of, inner, is_traced
from anyjax.torch.core.pytrees import flatten

NUMBERS = (bool, int, float, complex)


class Unset:
    """Stands for a name without a value."""


UNSET = Unset()


class Names:
    """The names and places that a statement assigns."""

    def __init__(self, facts: tuple, places: list[tuple[Any, str]]):
        self.names, self.later, self.target = facts
        self.places = places

    def values(self, scope: dict[str, Any]) -> list[Any]:
        """Returns the values of the names."""
        return [scope.get(name, UNSET) for name in self.names]

    def after(self, body: Callable, values: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Returns whether there may be another turn, and the values after this one."""
        goes_on, scope = body(*values)
        return goes_on, self.values(scope)

    def slots(self, values: Sequence[Any]) -> list[Any]:
        """Returns the values of names and places."""
        return [*values, *(getattr(x, name, UNSET) for x, name in self.places)]

    def moves(self, values: Sequence[Any]) -> bool:
        """Returns whether something traced is among them."""
        leaves = flatten(self.slots(values))[0] if current_trace.active() else ()
        return any(isinstance(x, torch.Tensor) and is_traced(x) for x in leaves)

    def called(self, place: int) -> str:
        """Returns the name of a value."""
        return [*self.names, *(name for _, name in self.places)][place]

    def refused(self, why: str) -> DataDependent:
        """Returns the error of a statement that cannot be one of the program."""
        return DataDependent(
            "a loop or branch that values decide",
            where=diagnostics.where(),
            why=f"it is compiled as lax.while_loop or lax.cond, and {why}",
            do="give names one dtype and shape in all turns and ways, or a loop a known length",
        )

    @contextlib.contextmanager
    def placed(self, slots: list[Any]) -> Iterator[None]:
        """Gives attributes their values for a while."""
        slots_before = self.slots(())
        self.assign(slots)
        try:
            yield
        finally:
            self.assign([*self.names, *slots_before])

    def assign(self, slots: list[Any]) -> None:
        """Gives attributes their values, or takes them away."""
        for (holder, name), value in zip(self.places, slots[len(self.names) :]):
            if value is not UNSET:
                setattr(holder, name, value)
            elif name in vars(holder):
                delattr(holder, name)


class Moving:
    """The values of a statement as tensors that go in and come out, and all else."""

    def __init__(self, statement: Names, values: Sequence[Any], functions: Sequence[Callable]):
        for function in functions:
            settle(function)
        self.statement, self.count = statement, len(values)
        self.mode = current_trace.trace().mode
        self.given = statement.slots(values)
        self.written: set[int] = set()  # leaves whose memory is written to
        self.replaced: set[int] = set()  # leaves that become other tensors
        self.hold(self.given)
        self.numbers = {i for i, x in enumerate(self.leaves) if isinstance(x, NUMBERS)}

    def hold(self, slots: list[Any]) -> None:
        """Keeps what goes in."""
        self.leaves, self.structure = flatten(slots)

    @property
    def moving(self) -> list[int]:
        """The leaves that go in and come out as tensors."""
        return [i for i, x in enumerate(self.leaves) if isinstance(x, (torch.Tensor, *NUMBERS))]

    def tensors(self) -> list[torch.Tensor]:
        """Returns what goes in."""
        return [tensor(self.leaves[i]) for i in self.moving]

    def filled(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Returns the values with these tensors among them."""
        full = [*self.leaves]
        for i, moved in zip(self.moving, tensors):
            full[i] = moved
            moved.is_number = i in self.numbers
        return tree_unflatten(full, self.structure)

    def after(self, body: Callable, slots: list[Any]) -> tuple[Any, list[Any]]:
        """Returns whether there may be another turn, and all values after the body."""
        with self.statement.placed(slots):
            goes_on, values = self.statement.after(body, slots[: self.count])
            new = self.statement.slots(values)
        for i, name in enumerate(self.statement.names):
            if self.given[i] is UNSET and name not in self.statement.later:
                new[i] = UNSET  # of one turn alone
        return goes_on, new

    def note(self, tensors: Sequence[torch.Tensor], arrays: list, leaves: list[Any]) -> None:
        """Notes which tensors were written to, and which became others."""
        for i, old, array in zip(self.moving, tensors, arrays):
            if leaves[i] is not old:
                self.replaced.add(i)
            if array_of(old) is not array:
                self.written.add(i)
        if both := self.written & self.replaced:
            ends = [*itertools.accumulate(len(flatten(x)[0]) for x in self.given)]
            places = {next(p for p, end in enumerate(ends) if i < end) for i in both}
            names = ", ".join(map(self.statement.called, sorted(places)))
            raise self.statement.refused(f"{names} is written to and becomes another tensor")

    def results(self, after: Sequence[torch.Tensor]) -> list[Any]:
        """Returns the values of the names after the statement; assigns the attributes."""
        leaves = [*self.leaves]
        for i, new in zip(self.moving, after):
            if i in self.replaced:
                leaves[i] = new
            elif i in self.written:
                leaves[i].copy_(new)
        slots = tree_unflatten(leaves, self.structure)
        self.statement.assign(slots)
        return slots[: self.count]

    def probed(self, probe: Callable, start: Sequence[torch.Tensor]) -> None:
        """Runs code for the kinds of what it gives alone."""
        region = Closed(self.mode, probe, [*start])
        key = None if self.mode.trace.keys.rng is None else jax.random.key(0)
        jax.make_jaxpr(partial(higher_order.each, self.mode, region, key))(*region.arrays)


def settle(function: Callable) -> None:
    """Computes the tensors around a function that were written to by parts: within a region their
    new values would be those of the region.
    """
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # a name without a value
            for leaf in flatten(cell.cell_contents)[0]:
                if isinstance(leaf, torch.Tensor):
                    inner(leaf)


def tensor(value: object) -> Any:
    """Returns a number as a tensor."""
    return torch.tensor(value) if isinstance(value, NUMBERS) else value


def same(one: object, other: object) -> bool:
    """Returns whether two values that are no tensors are equal, and of one type."""
    return type(one) is type(other) and bool(one == other)
