"""``mask.nonzero()`` of a vector where only the program knows how many places that is."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tojax.torch.data_dependent.padded import Padded, array
from tojax.torch.data_dependent.padded_functions import part, shared
from tojax.torch.data_dependent.traced_index import GET

MAKERS = {torch.nonzero, torch.Tensor.nonzero, torch.where}


class Places(Padded):
    """The places [n] or [n, 1] of a vector's elements, of which those that are not 0 count."""

    def like(self, rows: torch.Tensor, kind: type[Padded] | None = None) -> Padded:
        """Other rows, chosen alike."""
        return super().like(rows, Places if rows.dtype is torch.int64 else Padded)


def of(vector: torch.Tensor, error: Callable[..., Exception]) -> Places:
    """``vector.nonzero()`` without its last dimension of one."""
    chosen = vector.bool().clone()
    return Places(torch.arange(len(chosen)), chosen, array(vector), error)


def at(func, args, kwargs, one: Padded) -> Padded:
    """``x[places]``, ``x.index_select(0, places)`` and ``x.gather(0, places)``."""
    if args[0] is one:
        return part(func, args, kwargs, one) if func is GET else one.refuse(func)
    tensor, *dim, index = args
    index = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    rank = tensor.dim() if func.__name__ == "gather" else 1
    if index is not one or one.ndim != rank or dim not in ([], [0]) or kwargs:
        one.refuse(func)
    return Padded(func(tensor, *dim, one.rows), one.chosen, one.mask, one.error)


def expanded(func, args, kwargs, one: Padded) -> Padded:
    """``places.expand(len(places), ...)``."""
    first, *sizes = args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:]
    own = any(first is x for x in one.totals) or (type(first) is int and first == -1)
    if not own or len(sizes) != one.ndim - 1 or kwargs:
        one.refuse(func)
    return shared(one, one.rows.expand(-1, *sizes))


Places.serves = {"__getitem__": at, "index_select": at, "gather": at, "expand": expanded}
