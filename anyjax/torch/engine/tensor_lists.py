"""``torch.tensor([...])`` and ``x[[...]]`` of lists with tensors in them, whose memory torch would
read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from anyjax.torch.core.sizes import symbolic

MAKERS = {torch.tensor, torch.as_tensor}


def index_of(index: object) -> Any:
    """Returns an index with its lists of tensors stacked, and symbolic sizes as numbers of the
    program; torch takes a list around tensors for a tuple.
    """
    if type(index) is list and any(isinstance(x, torch.Tensor) for x in index):
        index = tuple(index)
    if not isinstance(index, tuple):
        return stacked(index) if isinstance(index, torch.SymInt) else index
    return tuple(stacked(x) if holds_tensors(x) else x for x in index)


def leaves_of(data: object) -> Iterator[Any]:
    """Yields the numbers and tensors in nested lists and tuples."""
    if isinstance(data, (list, tuple)):
        for item in data:
            yield from leaves_of(item)
    else:
        yield data


def holds_tensors(data: object) -> bool:
    """Returns whether data is a list with tensors of one number each in it, torch takes no others,
    or with symbolic sizes.
    """
    if symbolic(data):
        return True
    tensors = [x for x in leaves_of(data) if isinstance(x, torch.Tensor)]
    nested = isinstance(data, (list, tuple))
    return nested and bool(tensors) and all(x.numel() == 1 for x in tensors)


def stacked(data: object, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """Returns the tensor, without a gradient, in the common dtype of all numbers."""
    if dtype is None:
        dtypes = (x.dtype if isinstance(x, torch.Tensor) else _dtype(x) for x in leaves_of(data))
        dtype = functools.reduce(torch.promote_types, dtypes)
    return _stack(data, dtype).detach()


def _dtype(number: object) -> torch.dtype:
    return torch.int64 if symbolic(number) else torch.tensor(number).dtype


def _stack(data: object, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(data, (list, tuple)):
        return torch.stack([_stack(x, dtype) for x in data])
    if isinstance(data, torch.Tensor):
        return data.to(dtype).reshape(())
    return torch.scalar_tensor(data, dtype=dtype)
