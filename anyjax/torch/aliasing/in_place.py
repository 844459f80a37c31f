"""In-place functions that functionalization does not serve, or serves in part.

Of aliases and composites, such as ``clip_`` and ``relu6_``, it knows only the forms that make a new
tensor; of a new size it does not tell ``numel()``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import Any

import torch
from torch.nn import functional

from anyjax.torch.core import private

aten = torch.ops.aten
OPERATORS = {  # whose own names it does not know
    torch.Tensor.__ior__: torch.Tensor.bitwise_or_,
    torch.Tensor.__iand__: torch.Tensor.bitwise_and_,
    torch.Tensor.__ixor__: torch.Tensor.bitwise_xor_,
    torch.Tensor.__ilshift__: torch.Tensor.bitwise_left_shift_,
    torch.Tensor.__irshift__: torch.Tensor.bitwise_right_shift_,
}
DIVISIONS = {"__itruediv__": "div_", "__idiv__": "div_", "__imod__": "remainder_"}
DIVISIONS |= {"__ifloordiv__": "floor_divide_", "__ipow__": "pow_"}
ACTIVATIONS = {functional.hardsigmoid, functional.hardswish, functional.hardtanh}
SIZES = {"resize_", "as_strided_"}
DRAWS = {"exponential_", "geometric_", "cauchy_", "log_normal_"}  # torch's take no generator


def computed(original: Callable, self: torch.Tensor, *args, **kwargs) -> torch.Tensor:
    """``original(self, ...)``, in place: a new tensor that is copied into ``self``."""
    name = original.__name__[:-1]
    make: Any = getattr(torch.Tensor, name, None) or getattr(aten, name)
    out = make(self, *args, **kwargs)
    if not torch.can_cast(out.dtype, self.dtype):
        raise RuntimeError(f"result type {out.dtype} can't be cast to {self.dtype}")
    return self.copy_(out)


def counted(original: Callable, self: torch.Tensor, *args, **kwargs) -> torch.Tensor:
    """``original(self, ...)``, and ``self.numel()`` is that of the new shape."""
    original(self, *args, **kwargs)
    if private.is_functional(self):
        self.data = aten.alias(self)
    return self


def resized_as(self: torch.Tensor, other: torch.Tensor, **kwargs) -> torch.Tensor:
    """``resize_as_`` whose views stay views."""
    return counted(torch.Tensor.resize_, self, other.shape, **kwargs)


def activation(original: Callable, input: torch.Tensor, *args, inplace=False, **kwargs) -> Any:
    """``original(input, ...)``, whose steps in place take no tensor of open sizes."""
    out = original(input, *args, **kwargs)
    return input.copy_(out) if inplace else out


@lru_cache(4096)
def known(func: Callable) -> Callable:
    """Returns the function, or one that does the same in a way that functionalization knows."""
    func = OPERATORS.get(func, func)
    if func in ACTIVATIONS:
        return wraps(func)(partial(activation, func))
    name = getattr(func, "__name__", "")
    if name == "resize_as_":
        return wraps(func)(resized_as)
    if name in SIZES:
        return wraps(func)(partial(counted, func))
    if not name.endswith("_") or not hasattr(aten, name) or not hasattr(aten, name[:-1]):
        return func
    if name in DRAWS:
        return wraps(func)(partial(computed, func))
    kernels = private.functionalized("Functionalize")
    if any(x.partition(".")[0] == f"aten::{name}" for x in kernels):
        return func
    return wraps(func)(partial(computed, func))


@lru_cache(4096)
def of_open_sizes(func: Callable) -> Callable:
    """Returns the function, or one that takes a tensor of open sizes, as most kernels of torch that
    write in place do not.
    """
    name = getattr(func, "__name__", "")
    func = getattr(torch.Tensor, DIVISIONS[name]) if name in DIVISIONS else func
    name = getattr(func, "__name__", "")
    packets = [getattr(aten, x) for x in (name, name[:-1]) if hasattr(aten, x)]
    if name == "copy_" or not name.endswith("_") or len(packets) < 2:
        return func
    tags = {x for packet in packets for y in packet.overloads() for x in getattr(packet, y).tags}
    if tags & {torch.Tag.inplace_view, torch.Tag.nondeterministic_seeded}:
        return func
    return wraps(func)(partial(computed, func))
