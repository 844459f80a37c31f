"""A written file as functions of weights and inputs, for comparison with torch."""

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
from flax import linen, nnx

from anyjax.torch.engine.callback import to_numpy

_COUNT = itertools.count()
FLAGS = ("deterministic", "use_running_average")  # by which a file in Linen does not train


@contextlib.contextmanager
def loaded_file(text: str, module: torch.nn.Module) -> Iterator[WrittenFile]:
    """Loads the file with the module's weights; forgets its classes afterwards."""
    file = types.ModuleType(f"anyjax_written_{next(_COUNT)}")
    sys.modules[file.__name__] = file
    try:
        exec(compile(text, file.__name__, "exec"), vars(file))
        name = re.findall(r'\A"""(\w+) in Flax', text)[0]
        yield (NnxFile if "from flax import nnx" in text else LinenFile)(file, name, module)
    finally:
        del sys.modules[file.__name__]


def weights_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """Returns the arrays of a state dict."""
    state = module.state_dict().items()
    return {k: to_numpy(v.detach()) for k, v in state if isinstance(v, torch.Tensor)}


def flat_arrays(value: object) -> list[Any]:
    """Returns the arrays of a result, in its order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [x for element in value for x in flat_arrays(element)]
    return [value] if isinstance(value, jax.Array) else []


class NnxFile:
    """A file in nnx."""

    def __init__(self, file: types.ModuleType, name: str, module: torch.nn.Module):
        self.file, self.cls = file, getattr(file, name)
        self.model = self._with_weights(weights_of(module))
        if hasattr(file, "connect"):
            file.connect(self.model, module)

    def _with_weights(self, weights: dict[str, np.ndarray]) -> Any:
        return self.file.load_params(self.cls(rngs=nnx.Rngs(0)), weights)

    def bound(self) -> nnx.Module:
        """Returns the module with its weights."""
        return self.model

    def takes(self) -> set[str]:
        """Returns the names of its arguments."""
        return set(inspect.signature(self.cls.__call__).parameters)

    def as_function(self, training: bool = False) -> tuple[Any, Any, Any]:
        """Returns ``function(params, rest, inputs) -> (arrays, statistics)``, its params and the
        rest.
        """
        self.model.train() if training else self.model.eval()
        split: Any = nnx.split(self.model, nnx.Param, ...)
        graph, params, state = split

        def forward(params: object, state: object, inputs: dict[str, Any]) -> tuple[list, dict]:
            model = nnx.merge(graph, params, state)
            outputs = flat_arrays(model(**inputs))
            return outputs, self.by_name(nnx.state(model, nnx.BatchStat))

        return forward, params, state

    def trains(self) -> bool:
        """Returns whether training mode changes anything."""
        self.model.train()
        training_graph = nnx.split(self.model)[0]
        self.model.eval()
        return training_graph != nnx.split(self.model)[0]

    def by_name(self, state: Any) -> dict[str, Any]:
        """Returns the arrays of parameters, or of statistics, by their names in the file."""
        return {".".join(map(str, k)): v[...] for k, v in nnx.to_flat_state(state)}

    def converted(self, weights: dict[str, np.ndarray]) -> tuple[dict, dict]:
        """Returns parameters and statistics that the file's loader makes of torch's arrays."""
        model = self._with_weights(weights)
        named = lambda kind: self.by_name(nnx.state(model, kind))
        return named(nnx.Param), named(nnx.BatchStat)


class LinenFile:
    """A file in Linen."""

    def __init__(self, file: types.ModuleType, name: str, module: torch.nn.Module):
        self.file, self.model = file, getattr(file, name)()
        self.variables = file.load_params(weights_of(module))

    def bound(self) -> linen.Module:
        """Returns the module with its weights."""
        return self.model.bind(self.variables)

    def takes(self) -> set[str]:
        """Returns the names of its arguments."""
        return set(inspect.signature(type(self.model).__call__).parameters)

    def as_function(self, training: bool = False) -> tuple[Any, Any, Any]:
        """Returns ``function(params, rest, inputs) -> (arrays, statistics)``, its params and the
        rest.
        """
        flags = {x: not training for x in FLAGS if x in self.takes()}
        rest = {k: v for k, v in self.variables.items() if k != "params"}

        def forward(params: Any, rest: Any, inputs: dict[str, Any]) -> tuple[list, dict]:
            keys = {x: jax.random.key(0) for x in ("dropout", "params")}
            outputs, collections = self.model.apply(
                {"params": params, **rest}, **inputs, **flags, rngs=keys, mutable=["batch_stats"]
            )
            return flat_arrays(outputs), self.by_name(collections.get("batch_stats", {}))

        return forward, self.variables.get("params", {}), rest

    def trains(self) -> bool:
        """Returns whether training mode changes anything."""
        return bool(self.takes() & set(FLAGS))

    def by_name(self, state: object) -> dict[str, Any]:
        """Returns the arrays of parameters, or of statistics, by their names in the file."""
        leaves, _ = jax.tree_util.tree_flatten_with_path(state)
        return {".".join(str(x.key) for x in path): value for path, value in leaves}

    def converted(self, weights: dict[str, np.ndarray]) -> tuple[dict, dict]:
        """Returns parameters and statistics that the file's loader makes of torch's arrays."""
        variables = self.file.load_params(weights)
        named = lambda kind: self.by_name(variables.get(kind, {}))
        return named("params"), named("batch_stats")


WrittenFile = NnxFile | LinenFile
