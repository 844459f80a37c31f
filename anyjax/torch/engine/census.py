"""Tensors of a trace that outlive it, as in a cache that forward filled: what holds them gets the
values of constants, and is named where they depend on the inputs.

    @functools.lru_cache
    def positions(length):                         # empty again after the trace
        return torch.arange(length)
"""

from __future__ import annotations

import contextlib
import functools
import gc
import types
from collections.abc import Iterator
from typing import Any

import torch

from anyjax import warn_once
from anyjax.errors import StateDropped
from anyjax.torch.core import private
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.objects.contents import contents, items
from anyjax.torch.objects.walk import alike

TENSORS = (torch.Tensor, torch.nn.Parameter)
CACHED = type(functools.lru_cache(contents))
RUNNING = (types.FrameType, types.GeneratorType, types.CoroutineType)  # nothing to put back


@contextlib.contextmanager
def taken() -> Iterator[None]:
    """Knows all tensors that are made in here, weakly; at the end nobody holds any of them."""
    outer, JaxTensor.living = JaxTensor.living, []
    ended = False
    try:
        yield
        ended = True
    finally:
        refs, JaxTensor.living = JaxTensor.living or [], outer
        if alive := _alive(refs):
            if ended:
                gc.collect()  # circles of objects go now
                alive = _alive(refs)
            names = _put_back(alive) if alive else []
    if alive and names:
        warn_once.warn(
            f"forward leaves a tensor in {names[0]}: it belongs to the traced program and has no "
            "values, and a program that is compiled already does not leave any. Return it, or keep "
            "it in an attribute of the module, where it is state",
            StateDropped,
        )


def _alive(refs: list) -> dict[int, torch.Tensor]:
    return {id(tensor): tensor for ref in refs if (tensor := ref()) is not None}


def _put_back(alive: dict[int, torch.Tensor]) -> list[str]:
    """Puts constants in the place of functional tensors around them; returns the places of others
    which have no values.
    """
    wrappers = [x for x in gc.get_objects() if type(x) in TENSORS and private.is_functional(x)]
    traced: list[str] = []
    for wrapper in wrappers:
        value = private.from_functional(wrapper)
        if id(value) not in alive:
            continue
        for holder in gc.get_referrers(wrapper):
            if holder is wrappers or isinstance(holder, RUNNING):
                continue
            place = _replaced(holder, wrapper, value)
            if place and isinstance(value, JaxTensor):
                traced.append(place)
    return traced


def _replaced(holder: Any, old: object, new: object, depth: int = 4) -> str:
    """Puts ``new`` in the place of ``old``; returns a name of the place, "" where there is none."""
    if isinstance(holder, CACHED):
        holder.cache_clear()
        return f"the cache of {holder.__name__}"
    if isinstance(holder, types.CellType):
        holder.cell_contents = new
        return "a variable of a function"
    if isinstance(holder, tuple):
        copy = alike(holder, _exchanged(holder, old, new))
        place = ""
        for outer in gc.get_referrers(holder) if depth else ():  # no comprehension: it refers, too
            if not isinstance(outer, RUNNING):
                place = _replaced(outer, holder, copy, depth - 1) or place
        return place
    members = contents(holder)
    if members is None:
        return ""
    keys = [key for key, x in items(members) if x is old]
    for key in keys:
        members[key] = new
    return f"{_owner(holder)}[{keys[0]!r}]" if keys else ""


def _exchanged(values: tuple, old: object, new: object) -> list:
    return [new if x is old else x for x in values]


def _owner(holder: object) -> str:
    """Returns a name of what has these attributes, or of a list or dict."""
    for owner in gc.get_referrers(holder):
        if getattr(owner, "__dict__", None) is holder:
            is_module = isinstance(owner, types.ModuleType)
            return owner.__name__ if is_module else f"vars({type(owner).__name__})"
        if isinstance(owner, dict) and "__builtins__" in owner:  # globals
            return next(name for name, x in owner.items() if x is holder)
    return f"a {type(holder).__name__}"
