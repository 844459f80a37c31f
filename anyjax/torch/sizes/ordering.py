"""Sorting, and the largest elements, of those that count."""

from __future__ import annotations

from typing import Any

import torch

from anyjax.torch.sizes.call import Call, Rule, counted, is_size
from anyjax.torch.sizes.counted import Counted, extent, is_static

aten = torch.ops.aten


def order_of(call: Call, x: Counted, axis: int, descending: bool) -> torch.Tensor:
    """Returns the places of the elements in order, those that do not count at the end."""
    order = x.tensor.argsort(dim=axis, descending=descending, stable=True)
    if is_static(x.dims[axis]):
        return order
    shape = [-1 if i == axis else 1 for i in range(len(x.dims))]
    counts = call.sizes.mask(x.dims[axis]).reshape(shape).expand(order.shape)
    last = (~counts.gather(axis, order)).to(torch.uint8)
    return order.gather(axis, last.argsort(dim=axis, stable=True))


def sort(call: Call, *args: Any, **kwargs: Any) -> tuple[Counted, Counted]:
    """Sorts a dimension; equal elements stay in their order."""
    named = call.named(args, kwargs)
    x = counted(named["self"])
    axis = x.axis(named["dim"])
    x = call.simple(x, axis)
    order = order_of(call, x, axis, named["descending"])
    return Counted(x.tensor.gather(axis, order), x.dims), Counted(order, x.dims)


def topk(call: Call, *args: Any, **kwargs: Any) -> tuple[Counted, Counted]:
    """Takes the largest or smallest elements, of which there have to be as many."""
    named = call.named(args, kwargs)
    x, size = counted(named["self"]), named["k"]
    axis = x.axis(named["dim"])
    x = call.simple(x, axis)
    order = order_of(call, x, axis, named["largest"])
    order = order.narrow(axis, 0, min(call.padded(size), order.shape[axis]))
    if not is_size(size):
        call.check(lambda: call.sizes.count(extent(x.dims[axis])) >= size, x, [axis])
    dims = (*x.dims[:axis], (size,), *x.dims[axis + 1 :])
    return Counted(x.tensor.gather(axis, order), dims), Counted(order, dims)


RULES: dict[Any, Rule] = {aten.sort: sort, aten.topk: topk}
