"""Components of a pipeline that are called many times and traced once: each call in the pipeline's
trace is one equation, and all of them share one program.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import torch
from jax.tree_util import PyTreeDef

from anyjax import trees
from anyjax.calls.call import warn_dropped
from anyjax.errors import DataDependent
from anyjax.torch import from_jax, from_torch
from anyjax.torch.core.lifting import inner, is_traced
from anyjax.typing import PyTree


class Method(torch.nn.Module):
    """A method of a module as a module of its own."""

    def __init__(self, module: torch.nn.Module, method: str):
        super().__init__()
        self.module, self.method = module, method
        self.training = module.training

    def forward(self, *args, **kwargs):
        return getattr(self.module, self.method)(*args, **kwargs)


class TracedOnce:
    """A method of a component as a JAX function that a trace of the pipeline calls.

    Tensors are its arguments, those whose values are known as well: a timestep is a number of the
    loop and not of the program. Known tensors that decide what is computed are static, and so is
    all that is no tensor.

    Attributes:
      deciding: names of the arguments that decide.
    """

    def __init__(self, name: str, module: torch.nn.Module, method: str):
        self.name = f"{name}_{method}" if method != "forward" else name
        self.method = method
        model = from_torch(Method(module, method))
        self.source, self.params = model.source, [*model.params]
        self.state = model.state
        self.deciding: set[str] = set()
        self.programs: dict[Any, Callable[..., Any]] = {}

    def __call__(self, component: torch.nn.Module, *args: PyTree, **kwargs: PyTree) -> Any:
        """Calls the method in a trace that has put its tensors into ``component``."""
        leaves, structure = jax.tree.flatten(trees.register((args, kwargs)))
        names = trees.names(args, kwargs, self.source.positional)
        weights = {name: self._tensor(component, name) for name in (*self.params, *self.state)}
        while True:
            try:
                return self._call(weights, names, leaves, structure)
            except DataDependent as error:
                values = {n: x for n, x in zip(names, leaves) if n in error.arguments}
                if not values or any(map(is_traced, values.values())):
                    break
                if not self.deciding.isdisjoint(values):
                    raise
                self.deciding |= values.keys()
        # as a part of the pipeline's trace, whose errors name the arguments of the pipeline
        return getattr(type(component), self.method)(component, *args, **kwargs)

    def _call(
        self,
        weights: dict[str, PyTree],
        names: list[str],
        leaves: list[PyTree],
        structure: PyTreeDef,
    ) -> Any:
        is_input = [isinstance(x, torch.Tensor) and n not in self.deciding
                    for n, x in zip(names, leaves)]  # fmt: skip
        static = tuple(None if i else _static(x) for i, x in zip(is_input, leaves))
        tensors = [x for i, x in zip(is_input, leaves) if i]
        if (structure, static) not in self.programs:
            program = self._program(structure, static)
            self.programs[structure, static] = program
        out = from_jax(self.programs[structure, static])(weights, tensors)
        return jax.tree.map(_opened, out, is_leaf=lambda x: isinstance(x, trees.Static))

    def _tensor(self, component: torch.nn.Module, name: str) -> Any:
        """Returns a weight as it is in the trace around; what is no attribute, as it was."""
        try:
            value = operator.attrgetter(name.removeprefix("module."))(component)
        except AttributeError:
            value = None
        return value if isinstance(value, torch.Tensor) else self.state[name]

    def _program(self, structure: PyTreeDef, static: tuple[trees.Static | None, ...]) -> Callable:
        def call(weights: dict[str, jax.Array], arrays: list[jax.Array]) -> Any:
            rest = iter(arrays)
            leaves = [next(rest) if x is None else x.value for x in static]
            args, kwargs = jax.tree.unflatten(structure, leaves)
            params = {name: weights[name] for name in self.params}
            state = {name: weights[name] for name in self.state}
            out, written = self.source(params, state, args, kwargs)
            warn_dropped(written, state)
            return jax.tree.map(lambda x: x if trees.is_array(x) else trees.Static(x), out)

        call.__name__ = self.name
        return jax.jit(call)


def _static(leaf: PyTree) -> trees.Static:
    value = trees.Constant(inner(leaf)) if isinstance(leaf, torch.Tensor) else leaf
    return trees.Static(value)


def _opened(leaf: object) -> Any:
    return leaf.value if isinstance(leaf, trees.Static) else leaf
