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
    items = index if isinstance(index, tuple) else (index,)
    indices = [x for x in items if isinstance(x, Padded)]
    rest = items[len(indices) :]
    first = all(x is y for x, y in zip(items, indices))
    alike = all(isinstance(x, Places) and x.mask is one.mask and x.ndim == 1 for x in indices)
    is_static = all(x is None or isinstance(x, (slice, int)) for x in rest)
    return (*(x.rows for x in indices), *rest) if first and alike and is_static else None


def read(func, args, kwargs, one: Padded) -> Padded:
    """``x[places]``, ``x[rows, columns, None]``, and the first ``places[:n]``."""
    target, index = args
    if target is one:
        leading_rows = first(index, one)
        return part(func, args, kwargs, one) if leading_rows is None else leading_rows
    positions = index_of(index, one)
    if positions is None or isinstance(target, Padded):
        one.refuse(func)
    return Padded(func(target, positions), one.chosen, one.mask, one.error)


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
    positions = index_of(index, one)
    if positions is None or isinstance(target, Padded):
        one.refuse(func)
    if isinstance(value, torch.Tensor) and not isinstance(value, Padded) and value.dim():
        one.refuse(func)
    if isinstance(value, torch.Tensor) and value.dtype != target.dtype:
        raise RuntimeError(f"values of {value.dtype} for a tensor of {target.dtype}")
    value = rows_beside(value, one) if isinstance(value, Padded) else value
    longer = torch.cat([target, target[:1]])
    longer[(torch.where(one.chosen, positions[0], len(target)), *positions[1:])] = value
    target.copy_(longer[:-1])


def add(func, args, kwargs, one: Padded) -> Any:
    """``y.index_add_(0, places, rows)``: others than those that count are 0."""
    arguments = dict(zip(("self", "dim", "index", "source"), args)) | kwargs
    target, source, alpha = arguments["self"], arguments.get("source"), arguments.get("alpha", 1)
    fits = arguments.get("index") is one and arguments.get("dim") in (0, -target.dim())
    if not fits or not isinstance(source, Padded) or one.ndim != 1:
        one.refuse(func)
    return func(target, 0, one.rows, rows_beside(source, one), alpha=alpha)


def rows_beside(value: Padded, one: Padded) -> torch.Tensor:
    """All rows of what was chosen alike."""
    return value.rows if value.mask is one.mask else one.refuse(OTHERS)


Places.serves = Places.serves | {"__getitem__": read, "__setitem__": write}
Places.serves |= {"index_add": add, "index_add_": add}
