"""Elements at indices: taken, written, added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anyjax.torch.sizes.call import Call, Operand, Rule, counted
from anyjax.torch.sizes.counted import Counted, Unserved, extent, is_static

aten = torch.ops.aten


def index(call: Call, x: Operand, indices: Sequence[Operand | None]) -> Counted:
    """Takes elements by indices; negative ones count from the end of what counts."""
    x = counted(x)
    axes = [i for i, place in enumerate(indices) if place is not None]
    x = call.simple(x, *axes)
    places, dims = call.broadcast(*(counted(indices[i]) for i in axes))
    if any(place.tensor.dtype is torch.bool for place in places):
        raise Unserved("a mask")
    items: list[Any] = list(indices)
    for axis, place in zip(axes, places):
        items[axis] = _from_front(call, x, axis, place.tensor)
    rest = [dim for i, dim in enumerate(x.dims) if i not in axes]
    first = axes[0] if axes == [*range(axes[0], axes[-1] + 1)] else 0
    return Counted(call.op(x.tensor, items), (*rest[:first], *dims, *rest[first:]))


def _from_front(call: Call, x: Counted, axis: int, place: torch.Tensor) -> torch.Tensor:
    """Returns indices of a dimension as those from the front."""
    if is_static(x.dims[axis]):
        return place
    return torch.where(place < 0, place + call.sizes.count(extent(x.dims[axis])), place)


def index_put(
    call: Call, x: Operand, indices: Sequence[Operand | None], values: Operand, add: bool = False
) -> Any:
    """Writes or adds values at indices; what does not count is written to a place that is dropped,
    and adds zero.
    """
    x, values = counted(x), counted(values)
    axes = [i for i, place in enumerate(indices) if place is not None]
    x = call.simple(x, *axes)
    places, dims = call.broadcast(*(counted(indices[i]) for i in axes))
    if any(place.tensor.dtype is torch.bool for place in places):
        raise Unserved("a mask")
    rest = [dim for i, dim in enumerate(x.dims) if i not in axes]
    first = axes[0] if axes == [*range(axes[0], axes[-1] + 1)] else 0
    spread_dims = (*rest[:first], *dims, *rest[first:])
    values = call.factored(values, spread_dims[len(spread_dims) - len(values.dims) :])
    spread = Counted(values.tensor.expand(call.sizes.shape(spread_dims)), spread_dims)
    items: list[Any] = list(indices)
    for axis, place in zip(axes, places):
        items[axis] = _from_front(call, x, axis, place.tensor)
    if add:
        return Counted(call.op(x.tensor, items, call.sizes.fill(spread), add), x.dims)
    axis, length = axes[0], x.tensor.shape[axes[0]]
    counts = call.sizes.fill(Counted(torch.ones_like(items[axis], dtype=torch.bool), dims), False)
    place = torch.where(items[axis] < 0, items[axis] + length, items[axis])
    items[axis] = torch.where(counts, place, length)
    longer = aten.constant_pad_nd(x.tensor, [0, 0] * (len(x.dims) - axis - 1) + [0, 1])
    return Counted(call.op(longer, items, spread.tensor).narrow(axis, 0, length), x.dims)


def index_select(call: Call, x: Operand, dim: int, places: Operand) -> Counted:
    """Takes elements of a dimension."""
    x, places = counted(x), counted(places)
    axis = x.axis(dim)
    x = call.simple(x, axis)
    dims = (*x.dims[:axis], *places.dims, *x.dims[axis + 1 :])
    return Counted(call.op(x.tensor, axis, places.tensor), dims)


def gather(call: Call, x: Operand, dim: int, places: Operand, **options: Any) -> Counted:
    """Takes an element of a dimension for each index."""
    x, places = counted(x), counted(places)
    axis = x.axis(dim)
    x = call.simple(x, axis)
    if any(i != axis and x.dims[i] != places.dims[i] for i in range(len(x.dims))):
        raise Unserved("indices of another size")
    return Counted(call.op(x.tensor, axis, places.tensor, **options), places.dims)


def scatter(
    call: Call, x: Operand, dim: int, places: Operand, source: Operand, *args: Any, **kwargs: Any
) -> Counted:
    """Writes, adds or reduces elements of a dimension at indices; what does not count goes to a
    place that is dropped.
    """
    x, places = counted(x), counted(places)
    axis = x.axis(dim)
    x = call.simple(x, axis)
    if any(x.dims[i] != d for i, d in enumerate(places.dims) if i != axis):
        raise Unserved("indices of another size")
    if isinstance(source, (Counted, torch.Tensor)):
        source = call.factored(counted(source), places.dims).tensor
    length = x.tensor.shape[axis]
    counts = Counted(torch.ones_like(places.tensor, dtype=torch.bool), places.dims)
    at = torch.where(call.sizes.fill(counts, False), places.tensor, length)
    longer = aten.constant_pad_nd(x.tensor, [0, 0] * (len(x.dims) - axis - 1) + [0, 1])
    out = call.op(longer, axis, at, source, *args, **kwargs)
    return Counted(out.narrow(axis, 0, length), x.dims)


def masked_scatter(call: Call, x: Operand, mask: Operand, source: Operand) -> Counted:
    """Writes the elements of a source in their order, of which there have to be enough."""
    source = counted(source)
    if any(source.symbolic[1:]) or source.symbolic[:1] not in ([], [0]):
        raise Unserved("elements that do not come first")
    source = call.simple(source, *source.symbolic)
    (x, mask), dims = call.broadcast(counted(x), counted(mask))
    places = call.sizes.fill(mask, False).expand(call.sizes.shape(dims))
    enough = lambda: places.sum() <= call.sizes.counts_of(source.dims)
    call.check(enough, source, source.symbolic)
    return Counted(call.op(x.tensor, places, source.tensor), dims)


def index_add(
    call: Call, x: Operand, dim: int, places: Operand, source: Operand, alpha: float = 1
) -> Counted:
    """Adds rows of a dimension at indices; what does not count adds zero."""
    x, places, source = counted(x), counted(places), counted(source)
    axis = x.axis(dim)
    x = call.simple(x, axis)
    if source.dims != (*x.dims[:axis], *places.dims, *x.dims[axis + 1 :]):
        raise Unserved("rows of another size")
    tensor = call.op(x.tensor, axis, places.tensor, call.sizes.fill(source, 0, [axis]), alpha=alpha)
    return Counted(tensor, x.dims)


RULES: dict[Any, Rule] = {
    aten.index.Tensor: index,
    aten._unsafe_index: index,
    aten.index_put: index_put,
    aten._unsafe_index_put: index_put,
    aten.index_select: index_select,
    aten.gather: gather,
    aten.masked_scatter: masked_scatter,
    aten.index_add: index_add,
    **dict.fromkeys([aten.scatter, aten.scatter_add, aten.scatter_reduce], scatter),
}
