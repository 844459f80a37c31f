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
import itertools
import operator
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
DEPTH = 5  # of tuples in tuples
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
        # Nothing here may hold a tensor, nor a Python function be called for each.
        if ended and any(map(operator.is_not, map(operator.call, refs), itertools.repeat(None))):
            gc.collect()  # circles of objects go now
        alive = _alive(refs)
        place = _put_back(alive) if alive else ""
    if alive and place:
        warn_once.warn(
            f"forward leaves a tensor in {place}: it belongs to the traced program and has no "
            "values, and a program that is compiled already does not leave any. Return it, or keep "
            "it in an attribute of the module, where it is state",
            StateDropped,
        )


def _alive(refs: list) -> dict[int, torch.Tensor]:
    return {id(tensor): tensor for ref in refs if (tensor := ref()) is not None}


def _put_back(alive: dict[int, torch.Tensor]) -> str:
    """Puts constants in the place of functional tensors around them; returns the place of another
    one, which has no values, "" where there is none.

    Whoever asks for referrers has all objects of the process looked at: all tensors ask at once.
    """
    wrappers = [x for x in gc.get_objects() if type(x) in TENSORS and private.is_functional(x)]
    news = {id(x): private.from_functional(x) for x in wrappers}
    olds: list[Any] = [x for x in wrappers if id(news[id(x)]) in alive]
    del wrappers
    places: list[tuple[Any, Any]] = []
    for _ in range(DEPTH if olds else 0):  # tuples get copies, which their holders hold next
        copies: list[Any] = []
        changed = {id(x): news[id(x)] for x in olds}
        for holder in gc.get_referrers(*olds):
            if holder is olds or isinstance(holder, RUNNING):
                continue
            if isinstance(holder, tuple):
                items_of = tuple.__iter__(holder)
                news[id(holder)] = alike(holder, [changed.get(id(x), x) for x in items_of])
                copies.append(holder)
            else:
                places += _replaced(holder, changed)
        if not copies:
            break
        olds = copies
    return _name(*places[0]) if places else ""


def _replaced(holder: Any, news: dict[int, Any]) -> list[tuple[Any, Any]]:
    """Puts something else in the place of the objects with these ids; returns (holder, key) of what
    has no values.
    """
    if isinstance(holder, CACHED):
        holder.cache_clear()
        return [(holder, None)] if any(map(_is_traced, news.values())) else []
    if isinstance(holder, types.CellType):
        new = holder.cell_contents = news[id(holder.cell_contents)]
        return [(holder, None)] if _is_traced(new) else []
    members = contents(holder)
    keys = [] if members is None else [key for key, x in items(members) if id(x) in news]
    for key in keys:
        members[key] = news[id(members[key])]
    return [(holder, key) for key in keys if _is_traced(members[key])]


def _is_traced(value: object) -> bool:
    return isinstance(value, JaxTensor) or (
        isinstance(value, tuple) and any(map(_is_traced, tuple.__iter__(value)))
    )


def _name(holder: Any, key: Any) -> str:
    """Returns a name of a place for a message."""
    if isinstance(holder, CACHED):
        return f"the cache of {holder.__name__}"
    if isinstance(holder, types.CellType):
        return "a variable of a function"
    return f"{_owner(holder)}[{key!r}]"


def _owner(holder: object) -> str:
    """Returns a name of what has these attributes, or of a list or dict."""
    for owner in gc.get_referrers(holder):
        if getattr(owner, "__dict__", None) is holder:
            is_module = isinstance(owner, types.ModuleType)
            return owner.__name__ if is_module else f"vars({type(owner).__name__})"
        if isinstance(owner, dict) and "__builtins__" in owner:  # globals
            return next(name for name, x in owner.items() if x is holder)
    return f"a {type(holder).__name__}"
