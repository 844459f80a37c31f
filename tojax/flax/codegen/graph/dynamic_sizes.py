"""The dimensions that may vary: all, unless sizes become longer expressions than anyone would
read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tojax.flax.codegen.graph.module_calls import watched
from tojax.flax.codegen.python.sizes import symbolic

MAX_LENGTH = 60  # symbols, numbers and operators of one size


class ComplicatedSizes(Exception):
    """Raised for sizes that are long expressions: torch.export takes minutes for them."""


@contextlib.contextmanager
def refuse_complicated_sizes(module: torch.nn.Module) -> Iterator[None]:
    """Raises ComplicatedSizes where a submodule gets an array with such a size."""

    def check(_: str, args: tuple, kwargs: dict) -> None:
        for x in pytree.tree_leaves((args, kwargs)):
            if isinstance(x, torch.Tensor) and any(
                _expression_length(size) > MAX_LENGTH for size in x.shape
            ):
                raise ComplicatedSizes

    with watched(module.named_modules(), check):
        yield


def _expression_length(size: Any) -> int:
    args = getattr(symbolic(size), "args", ())
    return 1 + sum(map(_expression_length, args))


def every_size(x: object) -> list[int]:
    """Returns all dimensions of an array, none of what is none."""
    return list(range(x.ndim)) if isinstance(x, torch.Tensor) else []
