"""Distinct values, counts and repetitions, whose number values decide."""

from __future__ import annotations

import math
from typing import Any

import torch

from anyjax.torch.core import diagnostics, sizes
from anyjax.torch.core.call import call_of
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.core.lengths import Length, decided
from anyjax.torch.core.lifting import array_of
from anyjax.torch.core.private import OpOverload
from anyjax.torch.core.size_bounds import extreme
from anyjax.torch.core.tensor import CountedTensor, JaxTensor
from anyjax.torch.data_dependent import int64, sizes_of_values
from anyjax.torch.lowering.run import Run
from anyjax.torch.ops.vision import not_overlapped
from anyjax.torch.sizes.counted import Counted, Sizes, Unserved, traced
from anyjax.torch.sizes.selection import places

aten = torch.ops.aten

COLUMNS = 16  # of rows that are sorted one column after the other
MOST = 1 << 24  # elements of a repetition that nothing else bounds


def unique(run: Run, op: OpOverload, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Returns distinct elements, or rows, in order; where each is among them; their counts."""
    return _distinct(run, x, 0, True)[: len(op._schema.returns)]


def unique_of_rows(run: Run, op: OpOverload, x: torch.Tensor, dim: int, *args: Any) -> Any:
    """Returns distinct slices of a dimension."""
    return _of_slices(run, x, dim, True)


def runs(
    run: Run, op: OpOverload, x: torch.Tensor, inverse=False, counts=False, dim: int | None = None
) -> Any:
    """Returns the first of equal neighbours."""
    return _distinct(run, x, 0, False) if dim is None else _of_slices(run, x, dim, False)


def _of_slices(run: Run, x: torch.Tensor, dim: int, is_sorted: bool) -> Any:
    values, inverse, counts = _distinct(
        run, run.above(torch.movedim, (x, dim, 0), {}), 1, is_sorted
    )
    return run.above(torch.movedim, (values, 0, dim), {}), inverse, counts


def _distinct(run: Run, x: torch.Tensor, rank: int, is_sorted: bool) -> tuple[torch.Tensor, ...]:
    shape = x.shape
    x = x if rank else run.above(torch.flatten, (x,), {})
    rows, dims, valid = _rows(run, x)
    order, starts, groups = run.below(_groups, (rows, valid, is_sorted), {})
    (index,) = places(run, starts)
    back = run.below(lambda: torch.zeros_like(groups).scatter(0, order, groups), (), {})
    inverse = back if dims is None else CountedTensor(back, dims[:1])
    numbers = run.below(
        lambda: torch.zeros_like(groups).scatter_add(0, groups.clamp(min=0), valid[order].long()),
        (), {},
    )  # fmt: skip
    values = run.below(
        aten.index.Tensor, (x, [run.below(aten.index.Tensor, (order, [index]), {})]), {}
    )
    inverse = inverse if rank else run.above(torch.reshape, (inverse, shape), {})
    return values, inverse, CountedTensor(traced(numbers), index.dims)


def _rows(run: Run, x: torch.Tensor) -> tuple[torch.Tensor, Any, torch.Tensor]:
    """Returns all elements along the first dimension, its factors, and which of them count."""
    if not isinstance(x, CountedTensor):
        return x, None, run.below(torch.ones, (x.shape[0],), {"dtype": torch.bool})
    counted, numbers = Counted(x.rows, x.dims), Sizes(run.lengths)
    if counted.symbolic != [0]:
        raise Unserved("along another dimension than that of its rows")
    counted = run.below(numbers.flatten, (counted, 0), {}) if len(x.dims[0]) > 1 else counted
    return counted.tensor, counted.dims, run.below(numbers.mask, (counted.dims[0],), {})


def _groups(rows: torch.Tensor, valid: torch.Tensor, is_sorted: bool) -> tuple[torch.Tensor, ...]:
    """Returns (an order of the rows, which of them begin a group in it, the group of each)."""
    columns = rows.reshape(rows.shape[0], math.prod(rows.shape[1:]))
    order = torch.arange(rows.shape[0])
    if is_sorted:
        if columns.shape[1] > COLUMNS:
            raise Unserved(f"of rows of more than {COLUMNS} numbers")
        keys = [columns[:, i] for i in reversed(range(columns.shape[1]))]
        for key in (*keys, (~valid).to(torch.uint8)):
            order = order[key[order].argsort(stable=True)]
    ordered, counts = columns[order], valid[order]
    differs = (ordered[1:] != ordered[:-1]).any(1)
    starts = torch.cat([torch.ones_like(counts[:1]), differs]) & counts
    return order, starts, starts.cumsum(0) - 1


def repeat(
    run: Run, op: OpOverload, repeats: torch.Tensor, *args: Any, output_size: Any = None
) -> Any:
    """Returns each place as often as it says."""
    if op is not aten.repeat_interleave.Tensor:  # of elements: by the places
        return run.above(op.decompose, (repeats, *args), {"output_size": output_size})
    rows, _, valid = _rows(run, repeats)
    rows = run.below(torch.where, (valid, rows, 0), {})
    if output_size is not None:
        return run.lower(call_of(op), (rows,), {"output_size": output_size})
    limit = int64.limit_of(repeats.rows if isinstance(repeats, CountedTensor) else repeats)
    bound = sizes.to_jax(rows.shape[0]) * limit
    if not isinstance(bound, int) or bound > MOST:
        raise Unserved("nothing bounds the sum of its numbers, which output_size= gives")
    total = run.below(torch.sum, (rows,), {})
    size = run.lengths.new(Length(total.array, bound, diagnostics.where(), (), 0, total.origins))
    return CountedTensor(run.lower(call_of(op), (rows,), {"output_size": bound}), ((size,),))


def bincount(
    run: Run, op: OpOverload, x: torch.Tensor, weights: Any = None, minlength: int = 0
) -> Any:
    """Counts each integer up to the greatest one, or adds its weights up."""
    rows, _, valid = _rows(run, x)
    rows = run.below(torch.where, (valid, rows, 0), {})
    pad = torch.nn.functional.pad
    ends = run.below(lambda: pad(torch.where(valid, rows.long() + 1, 0), (0, 1)), (), {})
    greatest = run.below(torch.max, (ends,), {})  # 0 where nothing counts
    bound = sizes_of_values.most(greatest)
    if bound is None:
        raise Unserved("nothing bounds its integers")
    size: Any = 0
    if isinstance(minlength, int) and not bound.proven and minlength >= bound.number:
        if run.conditions is not None:  # as many classes as are asked for
            run.conditions.append(array_of(greatest) <= minlength)
    else:
        size = sizes_of_values.size_of(greatest)
    length = extreme("max", sizes.to_jax(minlength), sizes.to_jax(size))
    size_of_all = Sizes(run.lengths).padded(length)

    def counted() -> torch.Tensor:
        each = valid.long()
        if weights is not None:
            terms = weights if weights.dtype is torch.float32 else weights.double()
            each = torch.where(valid, _rows(run, terms)[0], 0)
        return torch.zeros(size_of_all, dtype=each.dtype).index_add(0, rows.long(), each)

    out = traced(run.below(counted, (), {}))
    return CountedTensor(out, ((length,),)) if decided(length) else out


def suppressed(run: Run, op: OpOverload, boxes: torch.Tensor, scores: torch.Tensor, most: float):
    """Returns the places of boxes that no better one overlaps, the best first (``nms``)."""
    rows, _, valid = _rows(run, boxes)
    values = run.below(torch.where, (valid, _rows(run, scores)[0], -math.inf), {})
    count = array_of(run.below(torch.sum, (valid,), {}))
    order, stay = not_overlapped(array_of(rows), array_of(values), most, count)
    order = JaxTensor(order.astype(to_jax(torch.int64)), torch.int64)
    holds = run.below(lambda: JaxTensor(stay, torch.bool) & valid[order], (), {})
    (index,) = places(run, holds)
    return run.below(aten.index.Tensor, (order, [index]), {})


RULES: dict[Any, Any] = {
    **dict.fromkeys([aten._unique2, aten._unique], unique),
    aten.unique_dim: unique_of_rows,
    aten.unique_consecutive: runs,
    aten.unique_dim_consecutive: lambda run, op, x, dim, *rest: _of_slices(run, x, dim, False),
    aten.repeat_interleave: repeat,
    aten.bincount: bincount,
    "torchvision::nms": suppressed,
}
