"""Which submodule differs first: what each takes and gives, in the file and in torch."""

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

from tojax.flax.codegen.check.closeness import arrays_of
from tojax.flax.codegen.check.written_file import LinenFile, NnxFile, flat, opened
from tojax.flax.codegen.graph.dropout_rates import unmodified

CLOSE = 1e-3  # of the largest value


def first_apart(text: str, module: torch.nn.Module, side: Any,
                given: Callable[[list], dict]) -> str | None:  # fmt: skip
    """The path of the submodule in whose own lines the first difference lies; None if unknown."""
    try:
        theirs = _torch_calls(module, side)
        with opened(text, module) as file, jax.disable_jit(False):
            mine = _written_calls(file, given(side.leaves))
    except Exception:  # this only says where: what differs is known
        return None
    for path, entering, known in theirs:
        taken, made = mine.get(_plain(path), ([], []))
        if entering and not all(_among(x, known) for x in taken):
            return _around(path, mine)
        if not entering and not all(_among(x, known) for x in made):
            return path
    return ""


def _plain(path: str) -> str:
    """A path without what only the file, or only torch, has in it."""
    return "_".join(x for x in path.replace("_", ".").split(".") if x not in ("layers", ""))


def _around(path: str, mine: dict) -> str:
    """The module that calls this one."""
    while path:
        path = path.rpartition(".")[0]
        if not path or _plain(path) in mine:
            break
    return path


def _among(x: np.ndarray, known: list[np.ndarray]) -> bool:
    """Whether an array is one of these, or of a shape that none of these has."""
    same = [y for z in known for y in _layouts(z) if y.shape == x.shape]
    x = np.nan_to_num(x)
    near = lambda y: np.abs(x - y).max(initial=0) <= CLOSE * (np.abs(y).max(initial=0) + 1e-6)
    return not same or any(near(np.nan_to_num(y)) for y in same)


def _layouts(x: np.ndarray) -> list[np.ndarray]:
    """An array with its channels in the middle, and last."""
    return [x, np.moveaxis(x, 1, -1)] if x.ndim > 2 else [x]


def _torch_calls(module: torch.nn.Module, side: Any) -> list[tuple[str, bool, list]]:
    """(path, whether it begins, what it takes or gives) of first calls, as they happen."""
    found: dict[tuple[str, bool], list] = {}
    tensors = lambda value: [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]
    note = lambda name, entering, value: found.setdefault(
        (name, entering), arrays_of(tensors(value))
    )
    handles = []
    for name, part in module.named_modules():
        enter = lambda _, args, kwargs, name=name: note(name, True, (args, kwargs)) and None
        leave = lambda _, args, out, name=name: note(name, False, out) and None
        handles.append(part.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(part.register_forward_hook(leave))
    try:
        with unmodified(module), torch.no_grad():
            side.called(copy.deepcopy(side.leaves))
    finally:
        for handle in handles:
            handle.remove()
    return [(*key, value) for key, value in found.items()]


def _written_calls(file: NnxFile | LinenFile, given: dict) -> dict[str, tuple[list, list]]:
    """The same of the file, by plain paths."""
    found: dict[str, tuple[list, list]] = {}
    arrays = lambda value: [np.asarray(x) for x in flat(value)]

    def note(path: str, call: Callable, args: tuple, kwargs: dict) -> Any:
        taken = arrays((args, kwargs))
        out = call(*args, **kwargs)
        found.setdefault(_plain(path), (taken, arrays(out)))
        return out

    run, params, rest = file.function()
    with _watched_nnx(file, note) if isinstance(file, NnxFile) else _watched_linen(note):
        run(params, rest, given)
    return found


@contextlib.contextmanager
def _watched_linen(note: Callable) -> Iterator[None]:
    from flax import linen

    def watch(call: Any, args: tuple, kwargs: dict, context: Any) -> Any:
        if context.method_name != "__call__":
            return call(*args, **kwargs)
        return note(".".join(context.module.path), call, args, kwargs)

    with linen.intercept_methods(watch):
        yield


@contextlib.contextmanager
def _watched_nnx(file: NnxFile, note: Callable) -> Iterator[None]:
    """While this is open, the file's own classes tell of their calls."""
    places: dict[int, str] = {}

    def merged(*args: Any) -> Any:
        made = merge(*args)
        places.update({id(x): ".".join(map(str, path)) for path, x in nnx.iter_modules(made)})
        return made

    kinds = {type(x) for _, x in nnx.iter_modules(file.model)}
    own = [x for x in kinds if x.__module__ == file.file.__name__]
    before: dict[Any, Callable] = {kind: kind.__call__ for kind in own}
    merge, nnx.merge = nnx.merge, merged  # type: ignore[assignment]
    try:
        for kind, call in before.items():

            def watched(self: Any, *args: Any, call: Any = call, **kwargs: Any) -> Any:
                bound = lambda *x, **y: call(self, *x, **y)
                return note(places.get(id(self), "?"), bound, args, kwargs)

            kind.__call__ = watched
        yield
    finally:
        nnx.merge = merge
        for kind, call in before.items():
            kind.__call__ = call
