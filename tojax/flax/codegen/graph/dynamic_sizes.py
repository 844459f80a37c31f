"""The dimensions that may vary: all, unless sizes become longer expressions than anyone would
read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tojax.flax.codegen.python.sizes import symbolic

MAX_LENGTH = 60  # symbols, numbers and operators of one size


class ComplicatedSizes(Exception):
    """Raised for sizes that are long expressions: torch.export takes minutes for them."""


@contextlib.contextmanager
def refuse_complicated_sizes(module: torch.nn.Module) -> Iterator[None]:
    """Raises ComplicatedSizes where a submodule gets an array with such a size."""

    def check(submodule: torch.nn.Module, args: tuple, kwargs: dict) -> None:
        for x in pytree.tree_leaves((args, kwargs)):
            if isinstance(x, torch.Tensor) and any(
                _expression_length(size) > MAX_LENGTH for size in x.shape
            ):
                raise ComplicatedSizes

    submodules = list(module.modules())
    handles = [
        submodule.register_forward_pre_hook(check, with_kwargs=True) for submodule in submodules
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _expression_length(size: Any) -> int:
    args = getattr(symbolic(size), "args", ())
    return 1 + sum(map(_expression_length, args))


def every_size(x: Any) -> list[int]:
    """Returns all dimensions of an array."""
    return list(range(x.ndim)) if isinstance(x, torch.Tensor) else []


def all_but_picture_sizes(x: Any) -> list[int]:
    """Returns all dimensions; of pictures and volumes only the batch."""
    return every_size(x)[:1] if len(every_size(x)) > 3 else every_size(x)
