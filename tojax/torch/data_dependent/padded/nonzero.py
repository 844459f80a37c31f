"""``mask.nonzero()`` of a vector where only the program knows how many places that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tojax.torch.data_dependent.padded.functions import elementwise, part, shared
from tojax.torch.data_dependent.padded.padded import Padded, array
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
    is_total = any(first is x for x in one.totals) or (type(first) is int and first == -1)
    if not is_total or len(sizes) != one.ndim - 1 or kwargs:
        one.refuse(func)
    return shared(one, one.rows.expand(-1, *sizes))


Places.serves = {"__getitem__": at, "index_select": at, "gather": at, "expand": expanded}


class Kept(Places):
    """Ranks of rows among those that the mask ``among`` chose."""

    among: Any = None


def where(func, args, kwargs, one: Padded) -> Any:
    """``torch.where(mask)`` of a condition on each row of ``x[mask]``."""
    if len(args) > 1 or kwargs:
        return elementwise(func, args, kwargs, one)
    if one.ndim != 1:
        one.refuse(func)
    chosen = one.rows.bool().clone()
    ranks = Kept(one.chosen.cumsum(0) - 1, chosen, array(chosen), one.error)
    ranks.among = one.mask
    return (ranks,)


def get(func, args, kwargs, one: Padded) -> Padded:
    """``x[mask][kept]``: fewer of the rows."""
    index = args[1][0] if isinstance(args[1], tuple) and len(args[1]) == 1 else args[1]
    if args[0] is one and isinstance(index, Kept) and index.among is one.mask:
        return Padded(one.rows, index.chosen, index.mask, one.error)
    return part(func, args, kwargs, one)


Padded.serves = {"where": where, "__getitem__": get}
