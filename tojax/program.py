"""Jitted functions of a model, which live as long as what it was converted from.

``jax.jit`` keeps the static arguments of every call, and a source holds a module with its weights:
one jitted function for all models would keep every model that was ever called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax


class Kept(dict):
    """What calls of a source leave for later ones, programs above all; copies start with nothing.

    Example:
      >>> import copy
      >>> copy.copy(Kept(a=1))
      {}
    """

    def __reduce__(self):
        return Kept, ()


class Program:
    """``function(model, ...)``, jitted once for each source; options are those of ``jax.jit``.

    No other argument and no result may hold the model's source.
    """

    __wrapped__: Callable

    def __init__(self, function: Callable, **options: Any):
        functools.update_wrapper(self, function)
        self.options = options

    def of(self, model: Any) -> Any:
        """The jitted function of (params, state) and the other arguments."""
        kept, key = model.source.kept, (self, model.source)
        if key not in kept:
            bare = replace(model, params={}, state={})

            @functools.wraps(self.__wrapped__)
            def run(arrays, *args, **kwargs):
                params, state = arrays
                whole = replace(bare, params=params, state=state)
                return self.__wrapped__(whole, *args, **kwargs)

            kept[key] = jax.jit(run, **self.options)
        return kept[key]

    def __call__(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        return self.of(model)((model.params, model.state), *args, **kwargs)

    def eval_shape(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of the result; nothing is compiled."""
        return self.of(model).eval_shape((model.params, model.state), *args, **kwargs)


def program(**options: Any) -> Callable[[Callable], Program]:
    """``Program`` as a decorator with options."""
    return functools.partial(Program, **options)
