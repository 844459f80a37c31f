"""The submodule that differs first, by the inputs and outputs of all, in the file and in torch."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import torch
from flax import nnx
from torch.utils import _pytree as pytree

from anyjax.flax.codegen.check.closeness import arrays_of
from anyjax.flax.codegen.check.torch_side import TorchSide
from anyjax.flax.codegen.check.written_file import NnxFile, WrittenFile, flat_arrays, loaded_file
from anyjax.flax.codegen.graph.module_calls import unmodified, watched

CLOSE = 1e-3  # of the largest value


def first_different_submodule(text: str, module: torch.nn.Module, side: TorchSide,
                inputs_of: Callable[[list], dict]) -> str | None:  # fmt: skip
    """Returns the path of the first submodule whose own code differs; None if that is unknown."""
    try:
        torch_calls = _torch_calls(module, side)
        with loaded_file(text, module) as file, jax.disable_jit(False):
            file_calls = _written_calls(file, inputs_of(side.leaves))
    except Exception:  # this only says where: what differs is known
        return None
    for path, entering, expected in torch_calls:
        inputs, outputs = file_calls.get(_normalized(path), ([], []))
        if entering and not all(_is_near_any(x, expected) for x in inputs):
            return _caller(path, file_calls)
        if not entering and not all(_is_near_any(x, expected) for x in outputs):
            return path
    return ""


def _normalized(path: str) -> str:
    """Returns a path without segments that only the file, or only torch, has."""
    return "_".join(x for x in path.replace("_", ".").split(".") if x not in ("layers", ""))


def _caller(path: str, file_calls: dict) -> str:
    """Returns the module that calls this one."""
    while path:
        path = path.rpartition(".")[0]
        if not path or _normalized(path) in file_calls:
            break
    return path


def _is_near_any(x: np.ndarray, expected: list[np.ndarray]) -> bool:
    """Returns whether an array is near one of these, or has a shape that none of these has."""
    candidates = [y for z in expected for y in _layouts(z) if y.shape == x.shape]
    x = np.nan_to_num(x)
    is_near = lambda y: np.abs(x - y).max(initial=0) <= CLOSE * (np.abs(y).max(initial=0) + 1e-6)
    return not candidates or any(is_near(np.nan_to_num(y)) for y in candidates)


def _layouts(x: np.ndarray) -> list[np.ndarray]:
    """Returns an array with its channels in the middle, and last."""
    return [x, np.moveaxis(x, 1, -1)] if x.ndim > 2 else [x]


def _torch_calls(module: torch.nn.Module, side: TorchSide) -> list[tuple[str, bool, list]]:
    """Returns (path, whether it is the start, inputs or outputs) of first calls in order."""
    calls: dict[tuple[str, bool], list] = {}
    tensors = lambda value: [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]
    record = lambda name, entering, value: calls.setdefault(
        (name, entering), arrays_of(tensors(value))
    )
    enter = lambda name, args, kwargs: record(name, True, (args, kwargs))
    leave = lambda name, args, kwargs, out: record(name, False, out)
    with watched(module.named_modules(), enter, leave), unmodified(module), torch.no_grad():
        side.call(copy.deepcopy(side.leaves))
    return [(*key, value) for key, value in calls.items()]


def _written_calls(file: WrittenFile, inputs: dict) -> dict[str, tuple[list, list]]:
    """Returns inputs and outputs of the file's first calls, by normalized path."""
    calls: dict[str, tuple[list, list]] = {}
    arrays = lambda value: [np.asarray(x) for x in flat_arrays(value)]

    def record(path: str, call: Callable, args: tuple, kwargs: dict) -> Any:
        arguments = arrays((args, kwargs))
        out = call(*args, **kwargs)
        calls.setdefault(_normalized(path), (arguments, arrays(out)))
        return out

    run, params, state = file.as_function()
    with _watched_nnx(file, record) if isinstance(file, NnxFile) else _watched_linen(record):
        run(params, state, inputs)
    return calls


@contextlib.contextmanager
def _watched_linen(record: Callable) -> Iterator[None]:
    """Records the calls of Linen modules."""
    from flax import linen

    def watch(call: Any, args: tuple, kwargs: dict, context: Any) -> Any:
        if context.method_name != "__call__":
            return call(*args, **kwargs)
        return record(".".join(context.module.path), call, args, kwargs)

    with linen.intercept_methods(watch):
        yield


@contextlib.contextmanager
def _watched_nnx(file: NnxFile, record: Callable) -> Iterator[None]:
    """Records the calls of the file's own classes."""
    places: dict[int, str] = {}

    def merged(*args: Any) -> Any:
        model = merge(*args)
        places.update({id(x): ".".join(map(str, path)) for path, x in nnx.iter_modules(model)})
        return model

    kinds = {type(x) for _, x in nnx.iter_modules(file.model)}
    own_kinds = [x for x in kinds if x.__module__ == file.file.__name__]
    original_calls: dict[Any, Callable] = {kind: kind.__call__ for kind in own_kinds}
    merge, nnx.merge = nnx.merge, merged  # type: ignore[assignment]
    try:
        for kind, call in original_calls.items():

            def watched(self: Any, *args: Any, call: Any = call, **kwargs: Any) -> Any:
                bound = lambda *x, **y: call(self, *x, **y)
                return record(places.get(id(self), "?"), bound, args, kwargs)

            kind.__call__ = watched
        yield
    finally:
        nnx.merge = merge
        for kind, call in original_calls.items():
            kind.__call__ = call
