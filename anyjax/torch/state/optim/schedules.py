"""Learning-rate schedules of torch in a trace: their numbers are state, and a step of them is a
callback, for it is Python on numbers (``math.cos``, a user's lambda) that no program can hold.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler

from anyjax.torch.core.lifting import array_of, lift
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.objects.contents import NUMBERS

NESTED = "_schedulers"  # of SequentialLR and ChainedScheduler
OFTEN = 8  # steps after which a number that is ever changed has changed, or never is


class Groups:
    """The groups of an optimizer without their weights, for a schedule to change."""

    def __init__(self, groups: list[dict[str, object]]):
        value = lambda x: 0.0 if isinstance(x, torch.Tensor) else x  # a trace's: told at each step
        self.param_groups = [{k: value(x) for k, x in g.items() if k != "params"} for g in groups]
        self._opt_called = True

    def step(self) -> None:
        """Stands for the step that a schedule expects to have been called."""

    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]


def stand_in(schedule: LRScheduler, groups: Groups) -> Any:
    """Returns a copy that changes ``groups``."""
    new = object.__new__(type(schedule))
    lists = {k: [*x] for k, x in vars(schedule).items() if isinstance(x, list)}
    vars(new).update(vars(schedule) | lists | {"optimizer": groups})
    vars(new).pop("step", None)
    if NESTED in vars(new):
        vars(new)[NESTED] = [stand_in(x, groups) for x in vars(new)[NESTED]]
    return new


def places(schedule: LRScheduler, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(name, list or dict, key) of the numbers that it keeps count by: not of those that it was
    made with.
    """
    made_with = {*inspect.signature(type(schedule).__init__).parameters} - {"last_epoch"}
    for key, value in vars(schedule).items():
        if key == NESTED:
            for i, x in enumerate(value):
                yield from places(x, f"{prefix}{key}.{i}.")
        elif key in made_with:
            continue
        elif isinstance(value, list):
            yield from ((f"{prefix}{key}.{i}", value, i) for i, x in enumerate(value) if number(x))
        elif number(value):
            yield f"{prefix}{key}", vars(schedule), key


def number(value: object) -> bool:
    """Returns whether this is a number, or a tensor that stands for one in a trace."""
    is_number = isinstance(value, NUMBERS) and not isinstance(value, bool)
    return is_number or isinstance(value, torch.Tensor)


def numbers(schedule: LRScheduler) -> dict[str, Any]:
    """Returns the numbers that it keeps, by name."""
    return {name: holder[key] for name, holder, key in places(schedule)}


def flat(group: Mapping[str, object]) -> dict[str, Any]:
    """Returns the numbers of a group by name, ``betas.0`` for those in tuples."""
    several = {k: x for k, x in group.items() if k != "params" and isinstance(x, (tuple, list))}
    numbers = {k: x for k, x in group.items() if number(x)}
    return numbers | {f"{k}.{i}": x for k, items in several.items() for i, x in enumerate(items)}


def put(group: dict[str, Any], name: str, value: object) -> None:
    """Sets a number of a group."""
    key, dot, place = name.partition(".")
    if dot:
        value = (*group[key][: int(place)], value, *group[key][int(place) + 1 :])
    group[key] = value


def changed_in_groups(schedule: LRScheduler) -> list[list[str]]:
    """Of each group of its optimizer the names of the numbers that it changes."""
    groups = schedule.optimizer.param_groups
    trial = Groups(groups)
    copy, changed = stand_in(schedule, trial), [{"lr"} for _ in groups]
    for _ in range(OFTEN):
        copy.step(*([0.0] if takes_a_metric(schedule) else []))
        for names, old_group, new_group in zip(changed, groups, trial.param_groups):
            names |= {k for k, x in flat(new_group).items() if x != flat(old_group)[k]}
    return [sorted(names) for names in changed]


def takes_a_metric(schedule: LRScheduler) -> bool:
    """Returns whether its step asks for a loss."""
    return "metrics" in inspect.signature(type(schedule).step).parameters


@contextlib.contextmanager
def filled(
    schedule: LRScheduler, given: Mapping[str, torch.Tensor], changed: list[list[str]]
) -> Iterator[None]:
    """Its numbers are these tensors for a while, and its step computes them anew, and those of the
    groups that it has ``changed``.
    """
    originals = [(holder, key, holder[key]) for _, holder, key in places(schedule)]
    step = Step(schedule, changed)
    for name, holder, key in [*places(schedule)]:
        holder[key] = given.get(name, holder[key])
    vars(schedule)["step"] = step
    try:
        yield
    finally:
        del vars(schedule)["step"]
        for holder, key, value in originals:
            holder[key] = value


class Step:
    """``schedule.step`` of a trace: the host takes it, once for each run of the program."""

    def __init__(self, schedule: LRScheduler, changed: list[list[str]]):
        self.schedule, self.changed = schedule, changed
        self.kinds = {name: type(holder[key]) for name, holder, key in places(schedule)}
        self.alone = stand_in(schedule, Groups(schedule.optimizer.param_groups))

    def __call__(self, *args: Any) -> None:
        groups = self.schedule.optimizer.param_groups
        group_numbers = [
            {k: as_array(flat(g)[k]) for k in names} for g, names in zip(groups, self.changed)
        ]
        operands = group_numbers, {k: as_array(x) for k, x in numbers(self.schedule).items()}
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((), x.dtype), operands)
        args = tuple(map(as_array, args))
        group_numbers, schedule_numbers = jax.pure_callback(
            self.host, shapes, *operands, args, vmap_method="sequential"
        )
        wrap = lambda array: lift(JaxTensor(array))
        for group, new in zip(groups, group_numbers):
            for name, array in new.items():
                put(group, name, wrap(array))
        for name, holder, key in [*places(self.schedule)]:
            holder[key] = wrap(schedule_numbers[name])

    def host(self, own, kept, args):
        groups = Groups(self.alone.optimizer.param_groups)
        schedule = stand_in(self.alone, groups)
        for group, new in zip(groups.param_groups, own):
            for name, value in new.items():
                put(group, name, float(value))
        for name, holder, key in [*places(schedule)]:
            holder[key] = self.kinds[name](kept[name])
        schedule.step(*map(float, args))
        pairs = zip(groups.param_groups, self.changed)
        new_numbers = [{k: flat(group)[k] for k in names} for group, names in pairs]
        like = lambda x, before: np.asarray(x, before.dtype)
        return jax.tree.map(like, (new_numbers, numbers(schedule)), (own, kept))


def as_array(value: object) -> jax.Array:
    """Returns a number, or the tensor that stands for one, as a scalar."""
    if isinstance(value, torch.Tensor):
        return array_of(value).reshape(())
    return jax.numpy.asarray(value, np.float32 if isinstance(value, float) else np.int32)
