"""The flax side, nnx or Linen: its slots, runs of its submodules, and how values are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.core import FrozenDict, freeze

from tojax.errors import WrongArguments
from tojax.flax.matching import flax_layers
from tojax.flax.matching.layer import Slot
from tojax.flax.matching.submodule_runs import Arrays, Call, arrays, candidate_args, difference
from tojax.trees import is_array

Values = Mapping[tuple, Any]  # of variables, by path
Recorded = dict[tuple, tuple[Arrays, Arrays]]  # inputs and outputs by path


class FlaxSide:
    """A flax module; only ``write`` changes it.

    Attributes:
      modules: its submodules by path.
      error: what the last run raised.
    """

    modules: dict[tuple, Any]

    def __init__(self, module: nnx.Module | nn.Module, kwargs: Mapping[str, object]):
        self.module: Any = module
        self.kwargs = dict(kwargs)
        self.error: Exception | None = None
        self._compiled: dict[tuple, Callable] = {}
        self._refused: dict[tuple, Exception] = {}

    def slots(self) -> list[Slot]:
        raise NotImplementedError

    def write(self, values: Values) -> Any:
        """Fills the variables; returns the module, or Linen's new variables."""
        raise NotImplementedError

    def bind(self, path: tuple, values: Values) -> tuple[Any, Callable]:
        """Returns the weights of a submodule, and a pure function of them and its arguments."""
        raise NotImplementedError

    def record_calls(self, values: Values, args: tuple) -> Recorded:
        """Runs the module, and returns inputs and outputs of each submodule."""
        raise NotImplementedError

    def outputs(self, path: tuple, values: Values, args: tuple) -> Arrays | None:
        """Returns the outputs of the submodule, None if it does not take these arguments."""
        weights, call = self.bind(path, values)
        leaves = jax.tree.leaves(args)
        if all(map(is_array, leaves)):  # other leaves may decide what is computed
            call = self._compiled.setdefault(path, jax.jit(call))
        key = (path, *((x.shape, x.dtype) if is_array(x) else x for x in leaves))
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
          args: of the flax side, if they are known.
        """
        candidates = [args] if args is not None else candidate_args(call.inputs)
        outputs = [x for args in candidates if (x := self.outputs(path, values, args)) is not None]
        return min((difference(x, call.outputs) for x in outputs), default=np.inf)


def _record(recorded: Recorded, path: tuple, args: object, result: object) -> None:
    leaves = jax.tree.leaves((args, result))
    if not any(isinstance(x, jax.core.Tracer) for x in leaves):
        recorded.setdefault(path, (arrays(args), arrays(result)))


class NnxSide(FlaxSide):
    """An nnx module; a copy of it runs, in evaluation mode."""

    def __init__(self, module: nnx.Module, kwargs: Mapping[str, object]):
        super().__init__(module, kwargs)
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
        return state, lambda state, *args: nnx.merge(graph, state)(*args, **kwargs)

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


class LinenSide(FlaxSide):
    """A Linen module with variables, or with an example that gives their shapes.

    Its submodules are those of one abstract call of the example.
    """

    def __init__(self, module: nn.Module, variables: Any, example: Any, kwargs: Mapping[str, Any]):
        super().__init__(module, kwargs)
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
        return weights, lambda weights, *args: module.apply(weights, *args, **kwargs)

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


def flax_side(
    module: object, variables: object, example: tuple | None, kwargs: Mapping[str, Any]
) -> FlaxSide:
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
