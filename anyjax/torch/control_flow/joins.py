"""An ``if`` that values decide, as ``lax.cond`` of both ways, which join again behind it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_unflatten

from anyjax.errors import DataDependent
from anyjax.torch.control_flow import branches
from anyjax.torch.control_flow.moving import NUMBERS, Moving, Names, same, tensor
from anyjax.torch.core import private, sizes
from anyjax.torch.core.lifting import array_of
from anyjax.torch.core.pytrees import flatten


class Leaf(NamedTuple):
    """A value after one way of an ``if``: a static one, or a tensor; ``at``: the tensor of
    those that went in that it is, and whether it was written to.
    """

    value: Any
    dtype: torch.dtype | None = None
    shape: tuple = ()
    at: int | None = None
    written: bool = False


class Joined(Moving):
    """An ``if`` of the program: both ways give the same names."""

    def __init__(self, statement: Names, ways: Sequence[Callable], values: Sequence[Any]):
        super().__init__(statement, values, ways)
        self.ways = ways
        self.found: list[list[tuple[Any, list[Leaf]]]] = []

    def run(self, test: torch.Tensor) -> tuple:
        """Returns the values of the names after the statement; assigns the attributes."""
        raised = [x for x in (self.raised(way) for way in self.ways) if x is not None]
        if len(raised) == len(self.ways):
            raise raised[0]
        if raised:
            return self.without(test, raised[0])
        self.kinds = [self.kind(place, x) for place, x in enumerate(zip(*self.found))]
        ways = [partial(self.way, x) for x in self.ways]
        rest = iter(private.cond_op((test != 0).reshape(()), *ways, tuple(self.tensors())))
        originals = [self.leaves[i] for i in self.moving]
        slots = []
        for structure, leaves in self.kinds:
            new = []
            for leaf in leaves:
                if leaf.dtype is None:
                    new.append(leaf.value if leaf.at is None else originals[leaf.at])
                elif leaf.at is None:
                    new.append(next(rest))
                else:
                    new.append(originals[leaf.at].copy_(next(rest)))
            slots.append(tree_unflatten(new, structure))
        self.statement.assign(slots)
        return tuple(slots[: self.count])

    def raised(self, way: Callable) -> Exception | None:
        """Finds out the kinds of what a way gives; returns the error in which it ends."""
        self.found.append([])
        try:
            self.probed(partial(self.probe, way), self.tensors())
        except Exception as error:
            if not branches.is_raised(error):
                raise
            return error
        return None

    def without(self, test: torch.Tensor, error: Exception) -> tuple:
        """Returns what the way gives that raises nothing, NaN where the other one is gone."""
        first = bool(self.found[0])
        holds = (test != 0 if first else test == 0).reshape(())
        entered = {*map(id, self.leaves)}
        values = self.statement.after(self.ways[not first], self.given[: self.count])[1]
        leaves, structure = flatten(self.dropped(values))
        new = [
            i for i, x in enumerate(leaves) if id(x) not in entered and isinstance(x, torch.Tensor)
        ]
        floats = [i for i in new if leaves[i].is_floating_point() or leaves[i].is_complex()]
        if not floats:
            raise self.statement.refused(f"one of its two ways raises {error}") from error
        for i in floats:
            leaves[i] = torch.where(holds, leaves[i], torch.nan)
        return tuple(tree_unflatten(leaves, structure))

    def after(self, body: Callable, slots: list[Any]) -> tuple[Any, list[Any]]:
        goes_on, new = super().after(body, slots)
        return goes_on, self.dropped(new, slots)

    def dropped(self, new: Sequence[Any], slots: Sequence[Any] = ()) -> list[Any]:
        """Leaves names that nothing reads later as they came in."""
        slots = slots or self.given
        later, names = self.statement.later, self.statement.names
        return [
            slots[i] if i < len(names) and names[i] not in later else x for i, x in enumerate(new)
        ]

    def probe(self, way: Callable, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Keeps the kinds of what a way gives."""
        arrays = [array_of(x) for x in tensors]
        _, slots = self.after(way, self.filled(tensors))
        places = {id(x): i for i, x in enumerate(tensors)}

        def leaf(value: object) -> Leaf:
            array, at = tensor(value), places.get(id(value))
            if not isinstance(array, torch.Tensor):
                return Leaf(value)
            written = at is not None and array_of(value) is not arrays[at]
            number = value if isinstance(value, NUMBERS) else None
            return Leaf(number, array.dtype, tuple(map(sizes.to_jax, array.shape)), at, written)

        forms = [flatten(x) for x in slots]
        self.found[-1] = [(structure, [*map(leaf, x)]) for x, structure in forms]
        return []

    def kind(self, place: int, forms: Sequence[tuple[Any, list[Leaf]]]) -> tuple[Any, list[Leaf]]:
        """Returns what both ways leave of a value."""
        if any(structure != forms[0][0] for structure, _ in forms):
            raise self.refused(place, "has another structure")
        return forms[0][0], [self.common(place, x) for x in zip(*(x for _, x in forms))]

    def common(self, place: int, leaves: Sequence[Leaf]) -> Leaf:
        """Returns the kind of a leaf: without a dtype it is the same whichever way is taken."""
        first = leaves[0]
        static = all(x.dtype is None or x.value is not None for x in leaves)
        if static and all(x.value is first.value or same(x.value, first.value) for x in leaves):
            return Leaf(first.value)
        if any(x.dtype is None for x in leaves):
            raise self.refused(place, "is no tensor in one of them")
        written = any(x.written for x in leaves)
        if all(x.at == first.at for x in leaves) and first.at is not None:
            return first if written else Leaf(None, at=first.at)
        if written:
            raise self.refused(place, "is written to in one of them, another tensor in the other")
        tensors = [x for x in leaves if x.value is None] or [*leaves]
        dtype = functools.reduce(torch.promote_types, [x.dtype for x in tensors])
        shapes = {x.shape for x in tensors}
        if len(shapes) > 1 or any(x.dtype is not dtype for x in tensors if x.value is None):
            raise self.refused(place, "has another shape or dtype")
        return Leaf(None, dtype, shapes.pop())

    def refused(self, place: int, why: str) -> DataDependent:
        """Returns the error for a value that differs between the ways."""
        name = self.statement.called(place)
        return self.statement.refused(f"of the two ways {name} {why}")

    def way(self, way: Callable, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Returns the tensors that one way gives."""
        _, slots = self.after(way, self.filled(tensors))
        out = []
        for slot, (_, leaves) in zip(slots, self.kinds):
            for value, leaf in zip(flatten(slot)[0], leaves):
                if leaf.dtype is not None:
                    out.append(tensor(value).to(leaf.dtype).expand(sizes.to_torch(leaf.shape)))
        return out
