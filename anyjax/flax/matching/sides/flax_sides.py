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
from anyjax.flax.matching.sides.side import JaxSide, Recorded, Values
from anyjax.flax.matching.submodule_runs import arrays


def _record(recorded: Recorded, path: tuple, args: object, result: object) -> None:
    leaves = jax.tree.leaves((args, result))
    if not any(isinstance(x, jax.core.Tracer) for x in leaves):
        recorded.setdefault(path, (arrays(args), arrays(result)))


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

    def record_calls(self, values: Values, args: tuple) -> Recorded:
        paths = {id(m): path for path, m in self.modules.items()}
        recorded: Recorded = {}

        def recording(call: Callable) -> Callable:
            def call_and_record(module, *args, **kwargs):
                result = call(module, *args, **kwargs)
                if id(module) in paths:
                    _record(recorded, paths[id(module)], (args, kwargs), result)
                return result

            return call_and_record

        classes = {c for m in self.modules.values() for c in type(m).__mro__}
        methods = {c: c.__dict__["__call__"] for c in classes if "__call__" in c.__dict__}
        for cls, call in methods.items():  # nnx has no hooks
            cls.__call__ = recording(call)  # type: ignore[method-assign]
        try:
            self.bind((), values)
            self.copy(*args, **self.kwargs)
        finally:
            for cls, call in methods.items():
                cls.__call__ = call  # type: ignore[method-assign]
        return recorded


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

    def record_calls(self, values: Values, args: tuple) -> Recorded:
        recorded: Recorded = {}

        def recording(call, args, kwargs, context):
            result = call(*args, **kwargs)
            if context.method_name == "__call__":
                _record(recorded, tuple(context.module.path), (args, kwargs), result)
            return result

        weights, call = self.bind((), values)
        with nn.intercept_methods(recording):
            call(weights, *args)
        return recorded
