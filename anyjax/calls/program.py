"""Jitted functions of a model, which live as long as what it was converted from.

``jax.jit`` keeps the static arguments of every call, and a source holds a module with its weights:
one jitted function for all models would keep every model that was ever called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax

from anyjax.typing import PyTree


class Bound:
    """A program for one source, and for params and state of these names.

    ``jitted`` takes lists of arrays: JAX sorts the names of a dict anew at every call, which for
    300 of them takes as long as all else.
    """

    def __init__(self, function: Callable, options: dict[str, Any], model: Any):
        names = self.names = (*model.params,), (*model.state,)
        bare = replace(model, params={}, state={})

        @functools.wraps(function)
        def run(arrays, *args, **kwargs):
            params, state = (dict(zip(*pair)) for pair in zip(names, arrays))
            return function(replace(bare, params=params, state=state), *args, **kwargs)

        self.jitted: Any = jax.jit(run, **options)

    def arrays(self, model: Any) -> tuple[list, list]:
        """Params and state, in the order of the names.

        Raises:
          KeyError: the model has others.
        """
        params, state = self.names
        return _values(params, model.params), _values(state, model.state)


def _values(names: tuple[str, ...], arrays: Mapping[str, PyTree]) -> list[Any]:
    if len(names) != len(arrays):
        raise KeyError(len(arrays))
    return [*map(arrays.__getitem__, names)]


class Program:
    """``function(model, ...)``, jitted once for each source; options are those of ``jax.jit``.

    No other argument and no result may hold the model's source.
    """

    __wrapped__: Callable

    def __init__(self, function: Callable, **options: Any):
        functools.update_wrapper(self, function)
        self.options = options

    def bound(self, model: Any) -> Bound:
        """Returns the program for models of this source with these names."""
        names = frozenset(model.params), frozenset(model.state)
        programs, key = model.source.cache.programs, (self, names, model.source.flags)
        if key not in programs:
            programs[key] = Bound(self.__wrapped__, self.options, model)
        return programs[key]

    def of(self, model: Any) -> Any:
        """Returns the jitted function of lists of params and state, and the other arguments."""
        return self.bound(model).jitted

    def __call__(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        bound = self.bound(model)
        return bound.jitted(bound.arrays(model), *args, **kwargs)

    def eval_shape(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of the result; nothing is compiled."""
        bound = self.bound(model)
        return bound.jitted.eval_shape(bound.arrays(model), *args, **kwargs)


def program(**options: Any) -> Callable[[Callable], Program]:
    """``Program`` as a decorator with options."""
    return functools.partial(Program, **options)
