"""Operators by functions of arrays: ``@op(torch.ops.aten.add)`` takes the place of one in every
environment, ``jaten._aten_add`` is what anyjax computes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from anyjax.torch.source import from_torch
from anyjax.torchax.ops.ops_registry import register_torch_dispatch_op
from anyjax.typing import PyTree


def op(*aten: object, **kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator: the function serves these operators in every environment.

    Args:
      aten: operators, or all overloads of one.
      kwargs: ``is_jax_function=False`` for a function of tensors, ``needs_env=True``.
    """

    def serve(function: Callable[..., PyTree]) -> Callable[..., Any]:
        for target in aten:
            register_torch_dispatch_op(target, function, **kwargs)
        return function

    return serve


def of_arrays(function: Callable[..., PyTree]) -> Callable[..., Any]:
    """Returns a function of torch as one of arrays, whose sizes may be symbols."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return functools.partial(from_torch(forward).apply, {})


def __getattr__(name: str) -> Any:
    """Returns an operator as a function of arrays, by torchax's name of it: ``_aten_softmax``."""
    bare = name.removeprefix("_aten_")
    for packet in (f"_{bare}", bare) if bare != name else ():
        if hasattr(torch.ops.aten, packet):
            return of_arrays(getattr(torch.ops.aten, packet))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
