"""A loop that values decide, as one of the program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map, tree_unflatten

from anyjax.torch.control_flow.moving import NUMBERS, UNSET, Moving, Names, same, tensor
from anyjax.torch.core import private
from anyjax.torch.core.lifting import array_of
from anyjax.torch.core.pytrees import flatten, map_tensors
from anyjax.torch.core.tensor import differentiable

ROUNDS = 4  # until the dtypes of a loop settle


class Traced(Moving):
    """A loop of the program. ``counted``: the place of the target of a ``for``, the first number,
    the step and the number of turns.
    """

    def __init__(
        self,
        statement: Names,
        body: Callable,
        values: list[Any],
        test: Callable | None,
        counted: tuple | None = None,
    ):
        values = [*values]
        if counted:  # known before each turn
            values[counted[0]] = UNSET
        super().__init__(statement, values, [body, *([test] if test else [])])
        self.body, self.test, self.counted = body, test, counted
        self.settled = False

    def run(self) -> tuple:
        """Returns the values of the names after the loop; assigns the attributes."""
        for _ in range(ROUNDS):
            if not self.settled:
                self.settled = True
                self.probed(self.probe, self.start())
                self.hold(self.given)
        if not self.settled:
            raise self.statement.refused("its dtypes do not settle")
        _, turns, *tensors = private.while_loop_op(self.goes_on, self.step, tuple(self.start()), ())
        values = self.results(tensors)
        if self.counted:
            values[self.counted[0]] = self.number(turns - 1)
        return tuple(values)

    def start(self) -> list[torch.Tensor]:
        """Returns what goes in: whether there may be another turn, the turns so far, the rest."""
        return [torch.tensor(True), torch.tensor(0), *self.tensors()]

    def probe(self, more: torch.Tensor, turns: torch.Tensor, *tensors: torch.Tensor) -> Any:
        """Makes what goes into a turn of the kinds of what comes out of it."""
        _, slots = self.turn(turns, tensors)
        for place, (old, new) in enumerate(zip(self.given, slots)):
            if old is UNSET and new is not UNSET:
                self.given[place] = map_tensors(self.nothing, tree_map(tensor, new))
                self.settled = False
                continue
            (leaves, structure), (new_leaves, structure_after) = flatten(old), flatten(new)
            if structure != structure_after:
                name = self.statement.called(place)
                raise self.statement.refused(f"{name} has another structure after a turn")
            pairs = [self.alike(place, x, y) for x, y in zip(leaves, new_leaves)]
            self.given[place] = tree_unflatten(pairs, structure)
        return more

    def alike(self, place: int, old: object, new: object) -> Any:
        """Returns a leaf of the kind that it has after a turn."""
        name, new = self.statement.called(place), tensor(new)
        if isinstance(old, (torch.Tensor, *NUMBERS)) and isinstance(new, torch.Tensor):
            old_tensor = tensor(old)
            if (old_tensor.dtype, old_tensor.shape) == (new.dtype, new.shape):
                return old
            if isinstance(old, NUMBERS):
                self.settled = False
                return torch.full(new.shape, old, dtype=new.dtype)
            kinds = [f"{x.dtype}{list(x.shape)}" for x in (old, new)]
            raise self.statement.refused(f"{name} is {kinds[0]} before a turn, {kinds[1]} after it")
        if not (old is new or same(old, new)):
            raise self.statement.refused(f"{name}, which is no tensor, becomes another one")
        return old

    def nothing(self, like: torch.Tensor) -> torch.Tensor:
        """Returns what a name has that only a turn gives a value: NaN, as there may be none."""
        sure = self.counted and isinstance(self.counted[-1], int) and self.counted[-1] > 0
        if not sure and not differentiable(like.dtype):
            raise self.statement.refused("an integer is read after it that only a turn gives")
        return torch.full(like.shape, 0 if sure else math.nan, dtype=like.dtype)

    def goes_on(self, more: torch.Tensor, turns: torch.Tensor, *tensors: torch.Tensor) -> Any:
        """Returns whether there is another turn."""
        if self.test is None:
            return more & (turns < self.counted[-1])  # type: ignore[index]
        slots = self.filled(tensors)
        with self.statement.placed(slots):
            holds = tensor(self.test(*slots[: self.count]))
        return more & (holds != 0).reshape(())

    def step(self, more: torch.Tensor, turns: torch.Tensor, *tensors: torch.Tensor) -> list[Any]:
        """Returns what comes out of a turn."""
        arrays = [array_of(x) for x in tensors]
        goes_on, slots = self.turn(turns, tensors)
        leaves, _ = flatten(slots)
        self.note(tensors, arrays, leaves)
        return [tensor(goes_on), turns + 1, *(tensor(leaves[i]) for i in self.moving)]

    def turn(self, turns: torch.Tensor, tensors: Sequence[torch.Tensor]) -> tuple[Any, list[Any]]:
        """Returns whether there may be another turn, and all values after this one."""
        slots = self.filled(tensors)
        if not self.counted:
            return self.after(self.body, slots)
        slots[self.counted[0]] = self.number(turns)
        goes_on, slots = self.after(self.body, slots)
        slots[self.counted[0]] = UNSET
        return goes_on, slots

    def number(self, turns: torch.Tensor) -> torch.Tensor:
        """Returns the target of a ``for`` after so many turns."""
        _, first, step, _ = self.counted  # type: ignore[misc]
        return first + (turns if isinstance(step, int) and step == 1 else turns * step)
