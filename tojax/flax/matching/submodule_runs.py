"""Runs of both sides, in full or one submodule at a time; neither side is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tojax.flax.matching.flax_layers import filled_linen, nnx_modules, nnx_variables
from tojax.flax.matching.stored import as_numpy
from tojax.trees import is_array, register

if TYPE_CHECKING:
    import torch

Arrays = list[np.ndarray]
Recorded = dict[tuple, tuple[Arrays, Arrays]]  # inputs and outputs by path


class Call(NamedTuple):
    """A call of a torch submodule: its arrays."""

    path: str
    inputs: Arrays
    outputs: Arrays


def arrays(tree: Any) -> Arrays:
    """Returns the arrays of a call's arguments or result, on the host."""
    leaves = jax.tree.leaves(register(tree))
    return [as_numpy(x) for x in leaves if is_array(x)]


@contextmanager
def _evaluation_mode(module: torch.nn.Module) -> Iterator[None]:
    import torch

    modes = {m: m.training for m in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for m, mode in modes.items():
            m.training = mode


def record_calls(module: torch.nn.Module, args: tuple | Mapping[str, Any]) -> list[Call]:
    """Runs a module, and returns the first call of each submodule in the order of return."""
    calls: dict[str, Call] = {}
    hooks = []

    def recorder(path: str):
        def hook(_, args, kwargs, result):
            calls.setdefault(path, Call(path, arrays((args, kwargs)), arrays(result)))

        return hook

    for path, inner in module.named_modules():
        hooks.append(inner.register_forward_hook(recorder(path), with_kwargs=True))
    try:
        with _evaluation_mode(module):
            device = next((p.device for p in module.parameters()), None)
            by_position = isinstance(args, tuple)
            positional, named = tensors((args, {}) if by_position else ((), args), device)
            result = module(*positional, **named)
    finally:
        for hook in hooks:
            hook.remove()
    calls.pop("", None)
    return [*calls.values(), Call("", arrays(args), arrays(result))]


def tensors(args: tuple, device: torch.device | None = None) -> tuple:
    """Converts the arrays among arguments to torch tensors."""
    import torch

    def as_tensor(x: Any) -> torch.Tensor:
        tensor = x if isinstance(x, torch.Tensor) else torch.from_numpy(np.array(x))
        return tensor.to(device)

    return jax.tree.map(lambda x: as_tensor(x) if is_array(x) else x, args)


def call_on_random(module: torch.nn.Module, widths: list[int]) -> Call | None:
    """Calls a torch submodule on random numbers, of the first shape that it takes."""
    random = np.random.default_rng(0)
    for shape in [s for n in widths for s in ((2, 5, n), (2, n), (2, n, 8, 8), (2, n, 9))]:
        x = random.standard_normal(shape).astype(np.float32)
        try:
            return record_calls(module, (x,))[-1]
        except Exception:  # any error of a module that does not take this shape
            continue
    return None


def channels_last(x: np.ndarray) -> np.ndarray:
    """Moves channels from the second to the last axis."""
    return np.moveaxis(x, 1, -1)


def channels_first(x: np.ndarray) -> np.ndarray:
    """Moves channels from the last to the second axis."""
    return np.moveaxis(x, -1, 1)


def difference(got: Arrays, want: Arrays) -> float:
    """Returns the largest difference of the first outputs, as a fraction of the largest value;
    infinite if the shapes differ. Channels may be second or last.
    """
    if not got or not want:
        return np.inf
    x, y = got[0].astype(np.float64), want[0].astype(np.float64)
    scale = max(float(np.max(np.abs(y), initial=0.0)), 1e-30)
    orders = [y, *([channels_last(y)] if y.ndim > 2 else [])]
    errors = [float(np.max(np.abs(x - z), initial=0.0)) for z in orders if z.shape == x.shape]
    error = min(errors, default=np.inf) / scale
    return error if np.isfinite(error) else np.inf


class Runner:
    """A runner of flax submodules by path, with values for all variables."""

    modules: dict[tuple, Any]

    def __init__(self, kwargs: Mapping[str, Any]):
        self.kwargs = dict(kwargs)
        self.error: Exception | None = None  # what the last run raised
        self._compiled: dict[tuple, Callable] = {}
        self._refused: dict[tuple, Exception] = {}

    def bind(self, path: tuple, values: Mapping[tuple, Any]) -> tuple[Any, Callable]:
        """Returns the weights of a submodule, and a pure function of them and its arguments."""
        raise NotImplementedError

    def outputs(self, path: tuple, values: Mapping[tuple, Any], args: tuple) -> Arrays | None:
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

    def record_calls(self, values: Mapping[tuple, Any], args: tuple) -> Recorded:
        """Runs the module, and returns inputs and outputs of each submodule."""
        raise NotImplementedError


def _record(recorded: Recorded, path: tuple, args: Any, result: Any) -> None:
    leaves = jax.tree.leaves((args, result))
    if not any(isinstance(x, jax.core.Tracer) for x in leaves):
        recorded.setdefault(path, (arrays(args), arrays(result)))


class NnxRunner(Runner):
    """A runner of a copy of an nnx module, in evaluation mode."""

    def __init__(self, module: nnx.Module, kwargs: Mapping[str, Any]):
        super().__init__(kwargs)
        self.copy = nnx.clone(module)
        self.copy.eval()
        self.modules = nnx_modules(self.copy)
        self.variables = nnx_variables(self.copy)

    def bind(self, path: tuple, values: Mapping[tuple, Any]) -> tuple[Any, Callable]:
        for place, value in values.items():
            old = self.variables[place]
            old.set_value(jnp.asarray(value, old.get_value().dtype))
        graph, state = nnx.split(self.modules[path])
        kwargs = {} if path else self.kwargs
        return state, lambda state, *args: nnx.merge(graph, state)(*args, **kwargs)

    def record_calls(self, values: Mapping[tuple, Any], args: tuple) -> Recorded:
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


class LinenRunner(Runner):
    """A runner of a Linen module, whose submodules are found by one abstract call."""

    def __init__(self, module: nn.Module, variables: Any, example: Any, kwargs: Mapping[str, Any]):
        super().__init__(kwargs)
        self.variables = variables
        self.modules = {(): module}
        if example is None:
            return

        def add_module(call, args, kwargs, context):
            inner = context.module
            if context.method_name == "__call__":
                self.modules.setdefault(tuple(inner.path), inner.clone(parent=None, name=None))
            return call(*args, **kwargs)

        with nn.intercept_methods(add_module):
            jax.eval_shape(lambda v: module.apply(v, *example, **kwargs), variables)
        self.modules[()] = module

    def bind(self, path: tuple, values: Mapping[tuple, Any]) -> tuple[Any, Callable]:
        relative = {p[len(path) :]: v for p, v in values.items() if p[: len(path)] == path}
        inner = {}
        for collection, tree in self.variables.items():
            for step in path:
                tree = tree.get(step, {}) if hasattr(tree, "get") else {}
            inner[collection] = tree
        weights = filled_linen({k: v for k, v in inner.items() if v}, relative)
        module, kwargs = self.modules[path], {} if path else self.kwargs
        return weights, lambda weights, *args: module.apply(weights, *args, **kwargs)

    def record_calls(self, values: Mapping[tuple, Any], args: tuple) -> Recorded:
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


def closest_difference(flax: Arrays, torch: Arrays) -> float:
    """Returns the smallest ``difference`` of all pairs: arguments may come in another order."""
    pairs = [(a, b) for a in flax for b in torch]
    return min((difference([a], [b]) for a, b in pairs), default=np.inf)


def candidate_args(inputs: Arrays) -> Iterator[tuple]:
    """Yields arguments that a flax submodule may take, from those of torch."""
    for count in dict.fromkeys((len(inputs), 1)):
        args = inputs[:count]
        is_map = lambda x: x.ndim > 2 and x.dtype.kind == "f"
        yield tuple(args)
        if any(map(is_map, args)):
            yield tuple(channels_last(x) if is_map(x) else x for x in args)


def distance(
    runner: Runner,
    path: tuple,
    values: Mapping[tuple, Any],
    call: Call,
    args: tuple | None = None,
) -> float:
    """Returns how far the flax submodule's output is from torch's, as a fraction; infinite if it
    does not take torch's arguments.

    Args:
      runner, path, values: the flax side.
      call: of the torch side.
      args: of the flax side, if they are known.
    """
    best = np.inf
    for candidate in [args] if args is not None else candidate_args(call.inputs):
        outputs = runner.outputs(path, values, candidate)
        if outputs is not None:
            best = min(best, difference(outputs, call.outputs))
    return best
