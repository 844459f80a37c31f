"""A file that was written, as functions of weights and inputs, for comparing it with torch."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import torch
from flax import nnx

from tojax.torch.engine.callback import to_numpy

_COUNT = itertools.count()
FLAGS = (
    "deterministic",
    "use_running_average",
)  # by which a file in Linen does not train


@contextlib.contextmanager
def opened(text: str, module: torch.nn.Module) -> Iterator[Any]:
    """The file with the module's weights; its classes are forgotten afterwards."""
    file = types.ModuleType(f"tojax_written_{next(_COUNT)}")
    sys.modules[file.__name__] = file
    try:
        exec(compile(text, file.__name__, "exec"), vars(file))
        name = re.findall(r'\A"""(\w+) in Flax', text)[0]
        yield (NnxFile if "from flax import nnx" in text else LinenFile)(file, name, module)
    finally:
        del sys.modules[file.__name__]


def weights_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """The arrays of a state dict."""
    state = module.state_dict().items()
    return {k: to_numpy(v.detach()) for k, v in state if isinstance(v, torch.Tensor)}


def flat(value: Any) -> list[Any]:
    """The arrays of a result, in its order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [x for part in value for x in flat(part)]
    return [value] if isinstance(value, jax.Array) else []


class NnxFile:
    """A file in nnx."""

    def __init__(self, file: Any, name: str, module: torch.nn.Module):
        self.file, self.cls = file, getattr(file, name)
        self.model = self._filled(weights_of(module))
        if hasattr(file, "connect"):
            file.connect(self.model, module)

    def _filled(self, weights: dict[str, np.ndarray]) -> Any:
        return self.file.load_params(self.cls(rngs=nnx.Rngs(0)), weights)

    def takes(self) -> set[str]:
        """The names of its arguments."""
        return set(inspect.signature(self.cls.__call__).parameters)

    def function(self, training: bool = False) -> tuple[Any, Any, Any]:
        """(``function(params, rest, inputs) -> (arrays, statistics)``, its params, the rest)."""
        self.model.train() if training else self.model.eval()
        parts: Any = nnx.split(self.model, nnx.Param, ...)
        graph, params, rest = parts

        def run(params: Any, rest: Any, inputs: dict[str, Any]) -> tuple[list, dict]:
            made = nnx.merge(graph, params, rest)
            found = flat(made(**inputs))
            return found, self.named(nnx.state(made, nnx.BatchStat))

        return run, params, rest

    def trains(self) -> bool:
        """Whether it does something else in training mode."""
        self.model.train()
        one = nnx.split(self.model)[0]
        self.model.eval()
        return one != nnx.split(self.model)[0]

    def named(self, state: Any) -> dict[str, Any]:
        """The arrays of parameters, or of statistics, by their names in the file."""
        return {".".join(map(str, k)): v[...] for k, v in nnx.to_flat_state(state)}

    def laid_out(self, weights: dict[str, np.ndarray]) -> tuple[dict, dict]:
        """What the file's loader makes of arrays by torch's names: parameters, statistics."""
        made = self._filled(weights)
        named = lambda kind: self.named(nnx.state(made, kind))
        return named(nnx.Param), named(nnx.BatchStat)


class LinenFile:
    """A file in Linen."""

    def __init__(self, file: Any, name: str, module: torch.nn.Module):
        self.file, self.model = file, getattr(file, name)()
        self.variables = file.load_params(weights_of(module))

    def takes(self) -> set[str]:
        """The names of its arguments."""
        return set(inspect.signature(type(self.model).__call__).parameters)

    def function(self, training: bool = False) -> tuple[Any, Any, Any]:
        """(``function(params, rest, inputs) -> (arrays, statistics)``, its params, the rest)."""
        flags = {x: not training for x in FLAGS if x in self.takes()}
        rest = {k: v for k, v in self.variables.items() if k != "params"}

        def run(params: Any, rest: Any, inputs: dict[str, Any]) -> tuple[list, dict]:
            keys = {x: jax.random.key(0) for x in ("dropout", "params")}
            found, state = self.model.apply(
                {"params": params, **rest}, **inputs, **flags, rngs=keys, mutable=["batch_stats"]
            )
            return flat(found), self.named(state.get("batch_stats", {}))

        return run, self.variables.get("params", {}), rest

    def trains(self) -> bool:
        """Whether it does something else in training mode."""
        return bool(self.takes() & set(FLAGS))

    def named(self, state: Any) -> dict[str, Any]:
        """The arrays of parameters, or of statistics, by their names in the file."""
        found, _ = jax.tree_util.tree_flatten_with_path(state)
        return {".".join(str(x.key) for x in path): value for path, value in found}

    def laid_out(self, weights: dict[str, np.ndarray]) -> tuple[dict, dict]:
        """What the file's loader makes of arrays by torch's names: parameters, statistics."""
        made = self.file.load_params(weights)
        named = lambda kind: self.named(made.get(kind, {}))
        return named("params"), named("batch_stats")
