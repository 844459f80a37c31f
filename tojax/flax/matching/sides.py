"""The flax side, nnx or Linen: its slots, a runner, and how values are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
from flax import nnx
from flax.core import FrozenDict, freeze

from tojax.errors import WrongArguments
from tojax.flax.matching import flax_layers
from tojax.flax.matching.layer import Slot
from tojax.flax.matching.submodule_runs import LinenRunner, NnxRunner, Runner


class NnxSide:
    """An nnx module; only ``write`` changes it."""

    def __init__(self, module: nnx.Module, kwargs: Mapping[str, Any]):
        self.module, self.kwargs = module, kwargs
        self.variables = flax_layers.nnx_variables(module)
        self.modules = flax_layers.nnx_modules(module)

    def slots(self) -> list[Slot]:
        return flax_layers.nnx_slots(self.variables)

    def runner(self) -> Runner:
        return NnxRunner(self.module, self.kwargs)

    def write(self, values: Mapping[tuple, Any]) -> nnx.Module:
        for path, value in values.items():
            self.variables[path].set_value(value)
        return self.module


class LinenSide:
    """A Linen module with variables, or with an example that gives their shapes."""

    def __init__(self, module: nn.Module, variables: Any, example: Any, kwargs: Mapping[str, Any]):
        if variables is None and example is None:
            raise WrongArguments(
                "a Linen module alone has no shapes",
                where=type(module).__name__,
                why="Linen makes its variables when it is called",
                do="give variables=module.init(...), or example=(inputs,)",
            )
        if variables is None:
            init = lambda: module.init(jax.random.key(0), *example, **kwargs)
            variables = jax.eval_shape(init)
        self.frozen = isinstance(variables, FrozenDict)
        self.variables = dict(variables)
        self.module, self.example, self.kwargs = module, example, kwargs
        # without an example, kinds of layers are read from the variables' names
        self.modules: dict[tuple, Any] = dict(self.runner().modules) if example is not None else {}

    def slots(self) -> list[Slot]:
        return flax_layers.linen_slots(self.variables)

    def runner(self) -> Runner:
        return LinenRunner(self.module, self.variables, self.example, self.kwargs)

    def write(self, values: Mapping[tuple, Any]) -> Any:
        filled = flax_layers.filled_linen(self.variables, values)
        return freeze(filled) if self.frozen else filled


def flax_side(
    module: Any, variables: Any, example: tuple | None, kwargs: Mapping[str, Any]
) -> NnxSide | LinenSide:
    """Returns the side for a flax module.

    Raises:
      WrongArguments: it is no flax module, or a Linen module without shapes.
    """
    if isinstance(module, nnx.Module) and variables is None:
        return NnxSide(module, kwargs)
    if isinstance(module, nn.Module):
        return LinenSide(module, variables, example, kwargs)
    is_nnx = isinstance(module, nnx.Module)
    raise WrongArguments(
        "an nnx module holds its own variables" if is_nnx else f"{module!r} is no flax module",
        where="variables=..." if is_nnx else "the first argument of load_into",
        why="only Linen keeps variables apart" if is_nnx else "it is neither nnx nor Linen",
        do="leave variables out" if is_nnx else "give an instance of nnx.Module or linen.Module",
    )
