"""Flax modules, nnx and Linen, as the JAX side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from flax.core import FrozenDict, freeze

from anyjax.errors import WrongArguments
from anyjax.flax.matching import flax_layers
from anyjax.flax.matching.layer import Slot
from anyjax.flax.matching.sides.side import JaxSide, Values


class NnxSide(JaxSide):
    """An nnx module; a copy of it runs, in evaluation mode."""

    def __init__(self, module: nnx.Module, kwargs: Mapping[str, object], apply: Callable | None):
        super().__init__(kwargs, apply)
        self.module = module
        self.variables = flax_layers.nnx_variables(module)
        self.copy: Any = nnx.clone(module)
        self.copy.eval()
        self.modules = flax_layers.nnx_modules(self.copy)
        self.copied_variables = flax_layers.nnx_variables(self.copy)

    def slots(self) -> list[Slot]:
        return flax_layers.nnx_slots(self.variables)

    def write(self, values: Values) -> nnx.Module:
        for path, value in values.items():
            self.variables[path].set_value(value)
        return self.module

    def bind(self, path: tuple, values: Values) -> tuple[Any, Callable]:
        for place, value in values.items():
            old = self.copied_variables[place]
            old.set_value(jnp.asarray(value, old.get_value().dtype))
        graph, state = nnx.split(self.modules[path])
        kwargs = {} if path else self.kwargs
        run = (
            self.apply
            if self.apply and not path
            else lambda module, *args, **kw: module(*args, **kw)
        )
        return state, lambda state, *args: run(nnx.merge(graph, state), *args, **kwargs)


class LinenSide(JaxSide):
    """A Linen module with variables, or with an example that gives their shapes.

    Its submodules are those of one abstract call of the example.
    """

    def __init__(
        self,
        module: nn.Module,
        variables: Any,
        example: Any,
        kwargs: Mapping[str, Any],
        apply: Callable | None,
    ):
        super().__init__(kwargs, apply)
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
        self.modules = {(): module}
        if example is None:
            return
        if "params" in variables.get("params", {}):
            raise WrongArguments(
                f"{type(module).__name__} has a parameter or submodule called params",
                where="the top of its variables",
                why='Linen calls no module in whose variables "params" stands inside of "params"',
                do="rename it, give variables without an example, or the module around this one",
            )

        def add_module(call, args, kwargs, context):
            inner = context.module
            if context.method_name == "__call__":
                self.modules.setdefault(tuple(inner.path), inner.clone(parent=None, name=None))
            return call(*args, **kwargs)

        with nn.intercept_methods(add_module):
            jax.eval_shape(lambda v: module.apply(v, *example, **kwargs), self.variables)

    def slots(self) -> list[Slot]:
        return flax_layers.linen_slots(self.variables)

    def write(self, values: Values) -> Any:
        filled = flax_layers.filled_linen(self.variables, values)
        return freeze(filled) if self.frozen else filled

    def bind(self, path: tuple, values: Values) -> tuple[Any, Callable]:
        relative = {p[len(path) :]: v for p, v in values.items() if p[: len(path)] == path}
        inner = {}
        for collection, tree in self.variables.items():
            for step in path:
                tree = tree.get(step, {}) if hasattr(tree, "get") else {}
            inner[collection] = tree
        weights = flax_layers.filled_linen({k: v for k, v in inner.items() if v}, relative)
        module, kwargs = self.modules[path], {} if path else self.kwargs
        run = self.apply if self.apply and not path else module.apply
        return weights, lambda weights, *args: run(weights, *args, **kwargs)
