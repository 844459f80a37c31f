"""Calls that may write to memory which tensors share, as torch and its autograd would see them.

A write inside ``no_grad`` changes a value and leaves its gradient alone; one through a view that
autograd does not follow goes to the tensor that is viewed; one to elements that share memory is
refused.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from anyjax.torch.aliasing.no_grad_views import DETACH, functional
from anyjax.torch.aliasing.overlapping import MAKERS
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
                write(mode, func, (target, *args[1:]), kwargs)
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
    """Returns the function, a write inside ``no_grad`` as one."""
    if not torch.is_grad_enabled() and args and is_write(func):
        return write(mode, func, args, kwargs)
    if not torch.is_grad_enabled() and functional(kwargs.get("out")):
        return into(mode, func, args, kwargs)
    return func(*args, **kwargs)


def into(mode, func, args, kwargs) -> Any:
    """``out=`` inside ``no_grad``: the target keeps its gradient."""
    out = kwargs["out"]
    results = func(*args, **{k: v for k, v in kwargs.items() if k != "out"})
    if results.shape != out.shape or not torch.can_cast(results.dtype, out.dtype):
        return func(*args, **kwargs)  # torch resizes, or raises
    return call(mode, torch.Tensor.copy_, (out, results), {})


def write(mode, func, args, kwargs) -> Any:
    """Returns a write that autograd does not see."""
    mode.trace.writing = True
    try:
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
