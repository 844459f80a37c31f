"""Both sides run, whole or one submodule at a time, without a change to either."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    error: Exception | None = None  # what the last run raised

    def run(self, path: tuple, values: Mapping[tuple, Any], args: tuple) -> Arrays | None:
        """The outputs of the submodule; None where it does not take these arguments."""
        raise NotImplementedError


class NnxRunner(Runner):
    """A copy of an nnx module, in evaluation mode."""

    def __init__(self, module: nnx.Module, kwargs: Mapping[str, Any]):
        self.copy = nnx.clone(module)
        self.copy.eval()
        self.modules = nnx_modules(self.copy)
        self.variables = nnx_variables(self.copy)
        self.kwargs = dict(kwargs)

    def run(self, path: tuple, values: Mapping[tuple, Any], args: tuple) -> Arrays | None:
        for place, value in values.items():
            old = self.variables[place]
            old.set_value(jnp.asarray(value, old.get_value().dtype))
        self.error = None
        try:
            with jax.default_matmul_precision("highest"):
                return arrays(self.modules[path](*args, **({} if path else self.kwargs)))
        except Exception as error:  # a submodule whose arguments are not torch's
            self.error = error
            return None


class LinenRunner(Runner):
    """Submodules of a Linen module, found by one abstract call."""

    def __init__(self, module: nn.Module, variables: Any, example: Any, kwargs: Mapping[str, Any]):
        self.variables, self.kwargs = variables, dict(kwargs)
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

    def run(self, path: tuple, values: Mapping[tuple, Any], args: tuple) -> Arrays | None:
        cut = {p[len(path) :]: v for p, v in values.items() if p[: len(path)] == path}
        inner = {}
        for collection, tree in self.variables.items():
            for step in path:
                tree = tree.get(step, {}) if hasattr(tree, "get") else {}
            inner[collection] = tree
        done = filled_linen({k: v for k, v in inner.items() if v}, cut)
        self.error = None
        try:
            with jax.default_matmul_precision("highest"):
                kwargs = {} if path else self.kwargs
                return arrays(self.modules[path].apply(done, *args, **kwargs))
        except Exception as error:
            self.error = error
            return None


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
