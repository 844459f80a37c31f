"""Refuses everything but Models where a public function takes one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from anyjax.calls.layouts import with_arrays
from anyjax.errors import WrongArguments
from anyjax.model import Model
from anyjax.trees import Static

P = ParamSpec("P")
R = TypeVar("R")


def check_model(model: object, name: str) -> None:
    """Raises WrongArguments where the first argument of the function of this name is no Model."""
    if not isinstance(model, Model):
        raise WrongArguments(
            f"{name} of a {type(model).__name__}",
            why="it takes a Model: a pure function, its params and its state",
            do="make one first: anyjax.from_torch(module), anyjax.from_pretrained(folder), or "
            "what README names for other frameworks",
        )


def takes_model(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a public function refuse what is no Model before it does anything.

    A torch module has many of a Model's names, and would fail in the middle of the work, or not.
    Arguments of ``anyjax.static`` come as arrays.

    Args:
      function: its first parameter is the model.

    Raises:
      WrongArguments: (the function that is returned) the argument is no Model.
    """

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if args or "model" in kwargs:
            check_model(args[0] if args else kwargs["model"], function.__name__)
        batch: Any = {k: with_arrays(x) if isinstance(x, Static) else x for k, x in kwargs.items()}
        return function(*args, **batch)

    return checked
