"""Loops and branches of torch code that values decide, as those of the program.

The names and attributes that a statement gives values are what a branch returns and what goes from
turn to turn of a loop: tensors, and numbers, which become tensors. All else that is among them has
to stay as it is. Outside of traces, and while nothing traced decides, statements are Python's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from anyjax.errors import DataDependent
from anyjax.torch.control_flow import branches
from anyjax.torch.control_flow.joins import Joined
from anyjax.torch.control_flow.moving import UNSET, Names
from anyjax.torch.control_flow.turns import Traced
from anyjax.torch.core import current_trace
from anyjax.torch.core.lifting import is_traced

__all__ = ["UNSET", "branch", "either", "every", "integer", "loop", "negated", "number", "turns"]


def loop(functions: Sequence[Callable], scope: dict, facts: tuple, places: list, _: list) -> tuple:
    """Runs a ``while`` that data_dependent/statements.py has rewritten.

    Args:
      functions: whether there is another turn, of the values of the names; one turn, which gives
        whether there may be another and the names it has.
      scope: the names around the loop.
      facts: the names that the loop assigns, those of them that are read later, the target of a
        ``for``.
      places: (object, attribute) that the loop assigns.

    Returns:
      the values of the names, ``UNSET`` for those without one.

    Raises:
      DataDependent: what goes from turn to turn changes its kind.
    """
    test, body = functions
    statement = Names(facts, places)
    values = statement.values(scope)
    while True:
        holds = known(partial(test, *values))
        if holds is None:
            return Traced(statement, body, values, test).run()
        if holds and statement.moves(values):
            with contextlib.suppress(DataDependent):  # of other kinds after the first turn
                return Traced(statement, body, values, test).run()
        goes_on, values = statement.after(body, values) if holds else (False, values)
        if not goes_on:
            return tuple(values)


def turns(functions: Sequence[Callable], scope: dict, facts: tuple, places: list, ends: list):
    """Runs a ``for`` over a range; ``ends`` are its arguments."""
    statement = Names(facts, places)
    values, place = statement.values(scope), facts[0].index(facts[2])
    start, stop, step = (0, *ends, 1) if len(ends) == 1 else (*ends, 1)[:3]
    if current_trace.active():
        count = (stop - start) // step + ((stop - start) % step != 0)
        return Traced(statement, functions[0], values, None, (place, start, step, count)).run()
    for number in range(start, stop, step):
        values[place] = number
        goes_on, values = statement.after(functions[0], values)
        if not goes_on:
            break
    return tuple(values)


def branch(functions: Sequence[Callable], scope: dict, facts: tuple, places: list, test: list):
    """Runs an ``if``; ``test`` holds its condition."""
    statement = Names(facts, places)
    values = statement.values(scope)
    holds = known(lambda: test[0])
    if holds is not None:
        return tuple(statement.after(functions[not holds], values)[1])
    return Joined(statement, functions, values).run(test[0])


def known(test: Callable) -> bool | None:
    """Returns whether a condition holds, None where only the program knows."""
    with branches.undivided():
        try:
            holds = test()
        except DataDependent:
            return None
    return None if isinstance(holds, torch.Tensor) and is_traced(holds) else bool(holds)


def integer(value: Any) -> Any:
    """``int``."""
    traced = isinstance(value, torch.Tensor) and is_traced(value)
    return value.detach().reshape(()).long() if traced else int(value)


def negated(value: object) -> Any:
    """``not``."""
    return value == 0 if isinstance(value, torch.Tensor) and is_traced(value) else not value


def number(value: Any) -> Any:
    """Returns a copy of a tensor that stands for a number, which nothing writes to."""
    return value.clone() if getattr(value, "is_number", False) else value


def every(*tests: Callable, stops: bool = False) -> Any:
    """``and``: the first that is known to be false ends it."""
    value: Any = not stops
    for test in tests:
        new = test()
        if not (isinstance(new, torch.Tensor) and is_traced(new)):
            if bool(new) is stops:
                return new
        elif isinstance(value, torch.Tensor):
            value = (value != 0) | (new != 0) if stops else (value != 0) & (new != 0)
        else:
            value = new
    return value


def either(*tests: Callable) -> Any:
    """``or``: the first that is known to be true ends it."""
    return every(*tests, stops=True)
