"""The JAX side: its variables, runs of its submodules, and how values are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from anyjax.flax.matching import flax_layers
from anyjax.flax.matching.layer import Flax, Slot
from anyjax.flax.matching.submodule_runs import Arrays, Call, arrays, candidate_args, difference
from anyjax.trees import is_array

Values = Mapping[tuple, Any]  # of variables, by path


class JaxSide:
    """A JAX model; only ``write`` changes it.

    Attributes:
      modules: its submodules by path, the model itself by ``()``.
      kwargs: named arguments of the model's call.
      apply: how the model is called, ``apply(model_or_variables, *args)``, or None for its own way.
      error: what the last run raised.
      mapped: how many axes of batches a submodule may be mapped over, the likeliest first.
      axis_name: of the mapped axes.
    """

    modules: dict[tuple, Any]
    mapped: tuple[int, ...] = (0,)
    axis_name: Any = None

    def __init__(self, kwargs: Mapping[str, object], apply: Callable | None):
        self.kwargs, self.apply = dict(kwargs), apply
        self.error: Exception | None = None
        self._compiled: dict[tuple, Callable] = {}
        self._refused: dict[tuple, Exception] = {}

    def slots(self) -> list[Slot]:
        raise NotImplementedError

    def layers(self, slots: list[Slot]) -> list[Flax]:
        """Groups variables into layers."""
        return flax_layers.layers(slots, self.modules)

    def write(self, values: Values) -> Any:
        """Fills the variables; returns the model, or Linen's new variables."""
        raise NotImplementedError

    def bind(self, path: tuple, values: Values) -> tuple[Any, Callable]:
        """Returns the weights of a submodule, and a pure function of them and its arguments."""
        raise NotImplementedError

    def outputs(self, path: tuple, values: Values, args: tuple, axes: int = 0) -> Arrays | None:
        """Returns the outputs of the submodule, mapped over so many axes; None if it does not take
        these arguments.
        """
        weights, call = self.bind(path, values)
        leaves = jax.tree.leaves(args)
        if all(map(is_array, leaves)):  # other leaves may decide what is computed
            for _ in range(axes):
                call = jax.vmap(call, (None, *(0 for _ in args)), axis_name=self.axis_name)
            call = self._compiled.setdefault((path, axes), jax.jit(call))
        key = (path, axes, *((x.shape, x.dtype) if is_array(x) else x for x in leaves))
        self.error = self._refused.get(key)
        if self.error is not None:
            return None
        try:
            with jax.default_matmul_precision("highest"):
                return arrays(call(weights, *args))
        except Exception as error:  # a submodule with other arguments than torch's
            self.error = self._refused[key] = error
            return None

    def distance(self, path: tuple, values: Values, call: Call, args: tuple | None = None) -> float:
        """Returns how far the output of a submodule is from torch's, as a fraction; infinite if it
        does not take torch's arguments.

        Args:
          path, values: the submodule, and values of its variables.
          call: of the torch side.
          args: of the JAX side, if they are known.
        """
        candidates = [args] if args is not None else candidate_args(call.inputs)
        runs = [(x, axes) for x in candidates for axes in self._mapped(path)]
        outputs = [y for x, axes in runs if (y := self.outputs(path, values, x, axes)) is not None]
        return min((difference(x, call.outputs) for x in outputs), default=np.inf)

    def _mapped(self, path: tuple) -> tuple[int, ...]:
        return (0,) if path == () and self.apply is not None else self.mapped
