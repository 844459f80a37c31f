"""Subclasses of tensors that forward makes: their own ``__torch_function__`` is asked first.

A mode comes before the classes of the arguments, so it hands on to them. What they then call on
tensors without a class of their own comes back to the mode.
"""

from __future__ import annotations

from typing import Any

import torch

from anyjax.errors import Unsupported
from anyjax.torch.compat.patches import replaces
from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.tensor import JaxTensor

aten = torch.ops.aten
PLAIN = {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, JaxTensor}


def served(mode, func, types, args, kwargs) -> Any:
    """Lets a subclass of the arguments serve the call; NotImplemented where there is none.

    Raises:
      Unsupported: it wraps tensors below torch's functions, where they are traced already.
    """
    if not private.subclasses_are_asked():
        return NotImplemented
    for kind in types:
        is_ours = kind in PLAIN or kind.__module__.startswith("anyjax.")
        if is_ours or kind.__torch_function__ is private.no_torch_function:
            continue
        if kind.__torch_dispatch__ is not private.no_torch_dispatch:
            refuse(kind)
        public = getattr(torch.nn.functional, getattr(func, "__name__", ""), func)
        if getattr(public, "__wrapped__", None) is func:  # what the class compares with
            func = public
        with mode:
            return kind.__torch_function__(func, types, args, kwargs)
    return NotImplemented


def refuse(kind: type) -> None:
    """Raises Unsupported for a class with ``__torch_dispatch__``."""
    raise Unsupported(
        f"a tensor of class {kind.__name__} inside forward",
        where=diagnostics.where(),
        why="it works below torch's functions (__torch_dispatch__), where JAX traces",
        do="use plain tensors: torch.where and masked reductions for masked tensors, padding and "
        "a mask for nested ones",
    )


@replaces(private.AS_SUBCLASS)
def as_subclass(original, tensor, cls) -> torch.Tensor:
    """Returns an alias of that class: torch would take the values without asking a mode."""
    if not isinstance(tensor, torch.Tensor) or not private.is_functional(tensor):
        return original(tensor, cls)
    if cls.__torch_dispatch__ is not private.no_torch_dispatch:
        refuse(cls)
    with private.DisableTorchFunction():
        out = aten.alias(tensor)
    if cls is not torch.Tensor:
        out.__class__ = cls
    return out


@replaces(private.MAKE_SUBCLASS)
def make_subclass(original, cls, data, require_grad=False, **kwargs) -> torch.Tensor:
    """``torch.Tensor._make_subclass``: what a subclass of nn.Parameter is made by."""
    if not private.is_functional(data):
        return original(cls, data, require_grad, **kwargs)
    return as_subclass(original, data.detach(), cls).requires_grad_(require_grad)
