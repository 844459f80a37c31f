"""Reads and writes at ``mask.nonzero()``, as a loop over experts has them:

    rows, choice = torch.where(chosen == i)
    out[rows] += weights[rows, choice, None] * expert(x[rows])

All places are computed; those that do not count write to a row that is dropped.
"""

from __future__ import annotations

from typing import Any

import torch

from tojax.torch.data_dependent.padded.functions import OTHERS, part
from tojax.torch.data_dependent.padded.nonzero import Places
from tojax.torch.data_dependent.padded.padded import Padded, array


def index_of(index: Any, one: Padded) -> tuple | None:
    """The index with all rows, None where it does not begin with places that were chosen alike."""
    parts = index if isinstance(index, tuple) else (index,)
    found = [x for x in parts if isinstance(x, Padded)]
    rest = parts[len(found) :]
    first = all(x is y for x, y in zip(parts, found))
    alike = all(isinstance(x, Places) and x.mask is one.mask and x.ndim == 1 for x in found)
    plain = all(x is None or isinstance(x, (slice, int)) for x in rest)
    return (*(x.rows for x in found), *rest) if first and alike and plain else None


def read(func, args, kwargs, one: Padded) -> Padded:
    """``x[places]``, ``x[rows, columns, None]``, and the first ``places[:n]``."""
    target, index = args
    if target is one:
        some = first(index, one)
        return part(func, args, kwargs, one) if some is None else some
    known = index_of(index, one)
    if known is None or isinstance(target, Padded):
        one.refuse(func)
    return Padded(func(target, known), one.chosen, one.mask, one.error)


def first(index: Any, one: Padded) -> Padded | None:
    """``places[:n]``: those that count, as far as the n-th."""
    index = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    match index:
        case slice(start=None | 0, stop=int(stop), step=None | 1) if stop >= 0:
            chosen = one.chosen & (one.chosen.cumsum(0) <= stop)
            return type(one)(one.rows, chosen, array(chosen), one.error)
    return None


def write(func, args, kwargs, one: Padded) -> None:
    """``y[places] = ...`` of rows that were chosen alike, or one value for all."""
    target, index, value = args
    known = index_of(index, one)
    if known is None or isinstance(target, Padded):
        one.refuse(func)
    if isinstance(value, torch.Tensor) and not isinstance(value, Padded) and value.dim():
        one.refuse(func)
    if isinstance(value, torch.Tensor) and value.dtype != target.dtype:
        raise RuntimeError(f"values of {value.dtype} for a tensor of {target.dtype}")
    value = rows_beside(value, one) if isinstance(value, Padded) else value
    longer = torch.cat([target, target[:1]])
    longer[(torch.where(one.chosen, known[0], len(target)), *known[1:])] = value
    target.copy_(longer[:-1])


def add(func, args, kwargs, one: Padded) -> Any:
    """``y.index_add_(0, places, rows)``: others than those that count are 0."""
    given = dict(zip(("self", "dim", "index", "source"), args)) | kwargs
    target, source, alpha = given["self"], given.get("source"), given.get("alpha", 1)
    fits = given.get("index") is one and given.get("dim") in (0, -target.dim())
    if not fits or not isinstance(source, Padded) or one.ndim != 1:
        one.refuse(func)
    return func(target, 0, one.rows, rows_beside(source, one), alpha=alpha)


def rows_beside(value: Padded, one: Padded) -> torch.Tensor:
    """All rows of what was chosen alike."""
    return value.rows if value.mask is one.mask else one.refuse(OTHERS)


Places.serves = Places.serves | {"__getitem__": read, "__setitem__": write}
Places.serves |= {"index_add": add, "index_add_": add}
