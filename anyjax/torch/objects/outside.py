"""State that the code of a module's classes refers to and the module does not hold: globals,
variables of functions around, class attributes, defaults, and what hooks refer to.

    CACHE = {}                                     # state["CACHE.total"]
    class Summed(nn.Module):
        def forward(self, x):
            CACHE["total"] = CACHE.get("total", 0) + x
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from anyjax.torch.core.modules import named_modules
from anyjax.torch.objects.contents import LIBRARIES, View, contents
from anyjax.torch.objects.functions import captured, stored, written

OTHERS = LIBRARIES | {"transformers", "diffusers", "timm"}  # their globals are no state
VARIABLES = frozenset((dis.opmap["STORE_GLOBAL"], dis.opmap["STORE_DEREF"]))


def outside(module: torch.nn.Module) -> list[tuple[str, Any, Any]]:
    """Returns (name, what holds it, key), once each."""
    modules = [*named_modules(module).values()]
    hook_dicts = (d for m in modules for d in (m._forward_hooks, m._forward_pre_hooks))
    hooks = [hook for by_id in hook_dicts for hook in by_id.values()]
    places: dict[tuple[int, str], tuple[str, Any, Any]] = {}
    for references in (*map(_of_class, dict.fromkeys(map(type, modules))), *map(_of_hook, hooks)):
        for name, holder, key in references:
            places.setdefault((id(getattr(holder, "function", holder)), key), (name, holder, key))
    return [*places.values()]


def _of_class(kind: type) -> Iterator[tuple[str, Any, Any]]:
    for cls in kind.__mro__:
        if cls.__module__.partition(".")[0] in OTHERS:
            continue
        attributes = View(partial(_attributes, cls), partial(setattr, cls))
        for key, value in vars(cls).items():
            if isinstance(value, types.FunctionType):
                yield from _of_function(value, {*stored(value.__code__, VARIABLES)})
            elif not key.startswith("__") and (_may_change(value) or key in written(cls)):
                yield key, attributes, key


def _attributes(cls: type) -> dict[str, Any]:
    return dict(vars(cls))


def _of_hook(hook: Callable) -> Iterator[tuple[str, Any, Any]]:
    if getattr(hook, "__module__", "").partition(".")[0] not in OTHERS:
        yield from _of_function(hook, set())


def _of_function(function: Callable, stored: set[str]) -> Iterator[tuple[str, Any, Any]]:
    for name, (holder, key) in captured(function):
        if _may_change(holder[key]) or name in stored:
            yield name, holder, key


def _may_change(value: object) -> bool:
    """Returns whether forward can leave something in it."""
    if isinstance(value, torch.Tensor):
        return True
    return not isinstance(value, (torch.nn.Module, types.FunctionType)) and (
        contents(value) is not None
    )
