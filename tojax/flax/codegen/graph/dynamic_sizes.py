"""Which sizes may vary: all, unless what follows from them is more than anyone would read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tojax.flax.codegen.python.sizes import symbolic

MOST = 60  # symbols, numbers and operators of one size


class Involved(Exception):
    """A size is a long expression of the inputs', over which torch.export takes minutes."""


@contextlib.contextmanager
def simple_sizes(module: torch.nn.Module) -> Iterator[None]:
    """While this is open, a submodule that gets an array of involved sizes raises Involved."""

    def check(part: Any, args: Any, kwargs: Any) -> None:
        for x in pytree.tree_leaves((args, kwargs)):
            if isinstance(x, torch.Tensor) and any(_length(size) > MOST for size in x.shape):
                raise Involved

    parts = list(module.modules())
    handles = [part.register_forward_pre_hook(check, with_kwargs=True) for part in parts]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _length(size: Any) -> int:
    parts = getattr(symbolic(size), "args", ())
    return 1 + sum(map(_length, parts))


def every_size(x: Any) -> list[int]:
    """All dimensions of an array."""
    return list(range(x.ndim)) if isinstance(x, torch.Tensor) else []


def but_for_pictures(x: Any) -> list[int]:
    """The same, of pictures and volumes only the batch."""
    return every_size(x)[:1] if len(every_size(x)) > 3 else every_size(x)
