"""Calls that may write to memory which tensors share, as torch and its autograd would see them.

A write inside ``no_grad`` changes a value and leaves its gradient alone; one through a view that
autograd does not follow goes to the tensor that is viewed; one to elements that share memory is
refused.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import torch

from anyjax.torch.aliasing import in_place, leaves
from anyjax.torch.aliasing.no_grad_views import DETACH, functional
from anyjax.torch.aliasing.overlapping import MAKERS
from anyjax.torch.core import sizes
from anyjax.torch.core.lifting import inner, lift
from anyjax.torch.core.tensor import JaxTensor

WRITES = {"__setitem__", "__set__", "__iadd__", "__isub__", "__imul__", "__imatmul__", "__idiv__"}
WRITES |= {"__itruediv__", "__ifloordiv__", "__imod__", "__ipow__", "__iand__", "__ior__"}
WRITES |= {"__ixor__", "__ilshift__", "__irshift__"}


def call(mode, func, args, kwargs) -> Any:
    """Returns the function itself."""
    func, args, kwargs = mode.expanded.plain(func, args, kwargs)
    if args and is_write(func):
        mode.expanded.check(func, args[0])
        if mode.detached.writable(func, args[0]):
            target = mode.detached.original(args[0])
            with torch.no_grad():
                write(mode, func, target, *args[1:], **kwargs)
            return args[0]
    out = called(mode, func, args, kwargs)
    if func in DETACH and functional(args[0]):
        value = inner(out)
        detached = value.detached() if isinstance(value, JaxTensor) else value.clone()
        out = lift(detached)
        mode.picked.twin(mode.detached.same_memory(out), mode.detached.same_memory(args[0]))
    else:
        mode.detached.note(func, args, kwargs, out)
        mode.expanded.note(func, args, out)
    mode.tracks_views = bool(mode.detached.views or mode.expanded.known)
    return out


def called(mode, func, args, kwargs) -> Any:
    """Returns the function; what it writes lies where it did in memory."""
    if not args or not is_write(func):
        return func(*args, **kwargs)
    if functional(args[0]) and sizes.symbolic(args[0].shape):
        func = in_place.of_open_sizes(func)
    run = func if torch.is_grad_enabled() else partial(write, mode, func)
    if not functional(args[0]) or sizes.symbolic(args[0].shape) or args[0].is_contiguous():
        return run(*args, **kwargs)
    mode.trace.target, outer = args[0], mode.trace.target
    try:
        return run(*args, **kwargs)
    finally:
        mode.trace.target = outer


def write(mode, func, *args, **kwargs) -> Any:
    """Returns a write that autograd does not see: a leaf that shares the memory stays one."""
    mode.trace.writing = True
    try:
        with leaves.kept(mode.trace.leaves.values(), args[0]):
            return func(*args, **kwargs)
    finally:
        mode.trace.writing = False


@lru_cache(4096)
def concerned(func) -> bool:
    """Returns whether this function may write, or make elements or views that writes have to know
    of.
    """
    return is_write(func) or func in DETACH or getattr(func, "__name__", "") in MAKERS


@lru_cache(4096)
def is_write(func) -> bool:
    """Returns whether this function writes to its first argument."""
    name = getattr(func, "__name__", "")
    inplace = name.endswith("_") and not name.startswith("_")
    return inplace or name in WRITES
