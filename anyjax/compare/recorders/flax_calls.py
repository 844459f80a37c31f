"""Calls of Flax's submodules, of nnx and of Linen, watched from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from flax import linen, nnx

from anyjax.typing import PyTree

Record = Callable[[tuple, Callable, tuple, dict], "PyTree"]


@contextlib.contextmanager
def watched(module: nnx.Module | linen.Module, record: Record) -> Iterator[None]:
    """Calls ``record(path, call, args, kwargs)`` in the place of each module's call for a while; of
    nnx each class that such a module has, the paths being those in the module that is called first.
    """
    if isinstance(module, linen.Module):

        def watch(call: Callable, args: tuple, kwargs: dict, context: PyTree) -> PyTree:
            if context.method_name != "__call__":
                return call(*args, **kwargs)
            return record(tuple(context.module.path), call, args, kwargs)

        with linen.intercept_methods(watch):
            yield
        return
    kinds: set[Any] = {k for _, x in nnx.iter_modules(module) for k in type(x).__mro__}
    calls = {kind: vars(kind)["__call__"] for kind in kinds if "__call__" in vars(kind)}
    paths: dict[int, tuple] = {}
    running: set[int] = set()  # calls of super are no calls of their own
    try:
        for kind, call in calls.items():  # nnx has no hooks
            kind.__call__ = _recorded(call, paths, running, record)
        yield
    finally:
        for kind, call in calls.items():
            kind.__call__ = call


def _recorded(call: Callable, paths: dict[int, tuple], running: set[int], record: Record):
    """Returns a method that is recorded where a module is called from outside of itself."""

    def called(module: nnx.Module, *args: PyTree, **kwargs: PyTree) -> PyTree:
        if not paths:
            paths.update({id(x): path for path, x in nnx.iter_modules(module)})
        key = id(module)
        if key not in paths or key in running:
            return call(module, *args, **kwargs)
        running.add(key)
        try:
            return record(paths[key], partial(call, module), args, kwargs)
        finally:
            running.discard(key)

    return called
