"""Both sides run, whole or one submodule at a time, without a change to either."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tojax.flax.matching.flax_layers import filled_linen, nnx_modules, nnx_variables
from tojax.flax.matching.stored import as_numpy
from tojax.trees import is_array, register

Arrays = list[np.ndarray]
Seen = dict[tuple, tuple[Arrays, Arrays]]


class Call(NamedTuple):
    """A call of a torch submodule: the arrays that it took and gave."""

    path: str
    inputs: Arrays
    outputs: Arrays


def arrays(tree: Any) -> Arrays:
    """The arrays of a call's arguments or result, on the host."""
    leaves = jax.tree.leaves(register(tree))
    return [as_numpy(x) for x in leaves if is_array(x)]


@contextmanager
def _in_evaluation(module: Any) -> Iterator[None]:
    import torch

    modes = {m: m.training for m in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for m, mode in modes.items():
            m.training = mode


def calls(module: Any, args: tuple | Mapping[str, Any]) -> list[Call]:
    """The first call of each submodule, in the order in which they return."""
    found: dict[str, Call] = {}
    hooks = []

    def watch(path: str):
        def hook(_, given, named, result):
            found.setdefault(path, Call(path, arrays((given, named)), arrays(result)))

        return hook

    for path, inner in module.named_modules():
        hooks.append(inner.register_forward_hook(watch(path), with_kwargs=True))
    try:
        with _in_evaluation(module):
            device = next((p.device for p in module.parameters()), None)
            given, named = tensors((args, {}) if isinstance(args, tuple) else ((), args), device)
            result = module(*given, **named)
    finally:
        for hook in hooks:
            hook.remove()
    found.pop("", None)
    return [*found.values(), Call("", arrays(args), arrays(result))]


def tensors(args: tuple, device: Any = None) -> tuple:
    """Arguments as torch tensors."""
    import torch

    whole = lambda x: (x if isinstance(x, torch.Tensor) else torch.from_numpy(np.array(x))).to(
        device
    )
    return jax.tree.map(lambda x: whole(x) if is_array(x) else x, args)


def alone(module: Any, widths: list[int]) -> Call | None:
    """A call of a torch submodule on random numbers, of the first shape that it takes."""
    random = np.random.default_rng(0)
    for shape in [s for n in widths for s in ((2, 5, n), (2, n), (2, n, 8, 8), (2, n, 9))]:
        x = random.standard_normal(shape).astype(np.float32)
        try:
            return calls(module, (x,))[-1]
        except Exception:  # whatever a module raises about a shape that it does not take
            continue
    return None


def last(x: np.ndarray) -> np.ndarray:
    """Channels moved from the second to the last axis."""
    return np.moveaxis(x, 1, -1)


def first(x: np.ndarray) -> np.ndarray:
    """Channels moved from the last to the second axis."""
    return np.moveaxis(x, -1, 1)


def difference(got: Arrays, want: Arrays) -> float:
    """The largest difference of the first outputs, as a fraction of the largest value; infinite
    where the shapes differ. Channels may be second or last.
    """
    if not got or not want:
        return np.inf
    mine, theirs = got[0].astype(np.float64), want[0].astype(np.float64)
    ways = [theirs, *([last(theirs)] if theirs.ndim > 2 else [])]
    scale = max(float(np.max(np.abs(theirs), initial=0.0)), 1e-30)
    errors = [float(np.max(np.abs(mine - w), initial=0.0)) for w in ways if w.shape == mine.shape]
    found = min(errors, default=np.inf) / scale
    return found if np.isfinite(found) else np.inf


class Runner:
    """The flax side: submodules by path, run with values for all variables."""

    modules: dict[tuple, Any]

    def __init__(self, kwargs: Mapping[str, Any]):
        self.kwargs = dict(kwargs)
        self.error: Exception | None = None  # what the last run raised
        self._compiled: dict[tuple, Callable] = {}
        self._refused: dict[tuple, Exception] = {}

    def bound(self, path: tuple, values: Mapping[tuple, Any]) -> tuple[Any, Callable]:
        """The weights of a submodule, and a pure function of them and of its arguments."""
        raise NotImplementedError

    def run(self, path: tuple, values: Mapping[tuple, Any], args: tuple) -> Arrays | None:
        """The outputs of the submodule; None where it does not take these arguments."""
        weights, call = self.bound(path, values)
        leaves = jax.tree.leaves(args)
        if all(map(is_array, leaves)):  # others may decide what is computed
            call = self._compiled.setdefault(path, jax.jit(call))
        key = (path, *((x.shape, x.dtype) if is_array(x) else x for x in leaves))
        self.error = self._refused.get(key)
        if self.error is not None:
            return None
        try:
            with jax.default_matmul_precision("highest"):
                return arrays(call(weights, *args))
        except Exception as error:  # a submodule whose arguments are not torch's
            self.error = self._refused[key] = error
            return None

    def watched(self, values: Mapping[tuple, Any], args: tuple) -> Seen:
        """What each submodule took and gave when the whole module ran."""
        raise NotImplementedError


def _note(seen: Seen, path: tuple, given: Any, result: Any) -> None:
    leaves = jax.tree.leaves((given, result))
    if not any(isinstance(x, jax.core.Tracer) for x in leaves):
        seen.setdefault(path, (arrays(given), arrays(result)))


class NnxRunner(Runner):
    """A copy of an nnx module, in evaluation mode."""

    def __init__(self, module: nnx.Module, kwargs: Mapping[str, Any]):
        super().__init__(kwargs)
        self.copy = nnx.clone(module)
        self.copy.eval()
        self.modules = nnx_modules(self.copy)
        self.variables = nnx_variables(self.copy)

    def bound(self, path: tuple, values: Mapping[tuple, Any]) -> tuple[Any, Callable]:
        for place, value in values.items():
            old = self.variables[place]
            old.set_value(jnp.asarray(value, old.get_value().dtype))
        graph, state = nnx.split(self.modules[path])
        kwargs = {} if path else self.kwargs
        return state, lambda state, *args: nnx.merge(graph, state)(*args, **kwargs)

    def watched(self, values: Mapping[tuple, Any], args: tuple) -> Seen:
        paths = {id(m): path for path, m in self.modules.items()}
        seen: Seen = {}

        def watching(call: Callable) -> Callable:
            def watched(module, *given, **named):
                result = call(module, *given, **named)
                if id(module) in paths:
                    _note(seen, paths[id(module)], (given, named), result)
                return result

            return watched

        classes = {c for m in self.modules.values() for c in type(m).__mro__}
        own = {c: c.__dict__["__call__"] for c in classes if "__call__" in c.__dict__}
        for cls, call in own.items():  # nnx has no hooks of its own
            cls.__call__ = watching(call)  # type: ignore[method-assign]
        try:
            self.bound((), values)
            self.copy(*args, **self.kwargs)
        finally:
            for cls, call in own.items():
                cls.__call__ = call  # type: ignore[method-assign]
        return seen


class LinenRunner(Runner):
    """Submodules of a Linen module, found by one abstract call."""

    def __init__(self, module: nn.Module, variables: Any, example: Any, kwargs: Mapping[str, Any]):
        super().__init__(kwargs)
        self.variables = variables
        self.modules = {(): module}
        if example is None:
            return

        def seen(call, args, kwargs, context):
            inner = context.module
            if context.method_name == "__call__":
                self.modules.setdefault(tuple(inner.path), inner.clone(parent=None, name=None))
            return call(*args, **kwargs)

        with nn.intercept_methods(seen):
            jax.eval_shape(lambda v: module.apply(v, *example, **kwargs), variables)
        self.modules[()] = module

    def bound(self, path: tuple, values: Mapping[tuple, Any]) -> tuple[Any, Callable]:
        cut = {p[len(path) :]: v for p, v in values.items() if p[: len(path)] == path}
        inner = {}
        for collection, tree in self.variables.items():
            for step in path:
                tree = tree.get(step, {}) if hasattr(tree, "get") else {}
            inner[collection] = tree
        done = filled_linen({k: v for k, v in inner.items() if v}, cut)
        module, kwargs = self.modules[path], {} if path else self.kwargs
        return done, lambda weights, *args: module.apply(weights, *args, **kwargs)

    def watched(self, values: Mapping[tuple, Any], args: tuple) -> Seen:
        seen: Seen = {}

        def watching(call, given, named, context):
            result = call(*given, **named)
            if context.method_name == "__call__":
                _note(seen, tuple(context.module.path), (given, named), result)
            return result

        weights, call = self.bound((), values)
        with nn.intercept_methods(watching):
            call(weights, *args)
        return seen


def unequal(mine: Arrays, theirs: Arrays) -> float:
    """Like ``difference``, of the best of all first arrays: arguments may come in another order."""
    pairs = [(a, b) for a in mine for b in theirs]
    return min((difference([a], [b]) for a, b in pairs), default=np.inf)


def tries(inputs: Arrays) -> Iterator[tuple]:
    """The arguments that a flax submodule may take where torch took these."""
    for some in dict.fromkeys((len(inputs), 1)):
        given = inputs[:some]
        yield tuple(given)
        if any(x.ndim > 2 and x.dtype.kind == "f" for x in given):
            yield tuple(last(x) if x.ndim > 2 and x.dtype.kind == "f" else x for x in given)


def distance(
    runner: Runner,
    path: tuple,
    values: Mapping[tuple, Any],
    call: Call,
    args: tuple | None = None,
) -> float:
    """How far the flax submodule's output is from torch's, as a fraction; infinite where it does
    not take torch's arguments.

    Args:
      runner, path, values: the flax side.
      call: torch's.
      args: what the flax side takes, where that is known.
    """
    best = np.inf
    for given in [args] if args is not None else tries(call.inputs):
        outputs = runner.run(path, values, given)
        if outputs is not None:
            best = min(best, difference(outputs, call.outputs))
    return best
