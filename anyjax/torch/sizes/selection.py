"""Operators whose values decide how many elements there are: masks, places, distinct values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import torch

from anyjax.torch.core import diagnostics, sizes
from anyjax.torch.core.lengths import Length
from anyjax.torch.core.private import OpOverload
from anyjax.torch.core.tensor import CountedTensor, JaxTensor
from anyjax.torch.lowering.run import Run
from anyjax.torch.sizes.counted import Counted, Sizes, Unserved

aten = torch.ops.aten

MASKS = (torch.bool, torch.uint8)


def decides(name: Any, args: tuple) -> bool:
    """Returns whether traced values decide the size of a result, or where elements are written."""
    if name is aten.ctc_loss:
        return isinstance(args[1], CountedTensor)
    if name not in MASKED:
        return any(map(is_traced, args))
    counts = any(isinstance(x, CountedTensor) for x in (args[0], *args[1]))
    return any(counts or is_traced(x) for x in args[1] if _is_mask(x))


def _is_mask(x: object) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype in MASKS


def is_traced(x: object) -> bool:
    """Returns whether this is a tensor whose values only the program knows."""
    if isinstance(x, CountedTensor):
        return True
    return isinstance(x, JaxTensor) and isinstance(x.array, jax.core.Tracer)


def places(run: Run, mask: torch.Tensor) -> list[CountedTensor]:
    """Returns where a mask holds: indices [count] of each dimension, in order.

    The same mask gives the same size each time.
    """
    rows = run.below(_all_of, (run, mask), {})
    if id(rows.array) not in run.chosen:
        size, indices = run.below(_sorted_first, (run, rows), {})
        run.chosen[id(rows.array)] = rows.array, [CountedTensor(x, ((size,),)) for x in indices]
    return run.chosen[id(rows.array)][1]


def _all_of(run: Run, mask: torch.Tensor) -> JaxTensor:
    """Returns a mask of all elements, that holds for none that does not count."""
    if not isinstance(mask, CountedTensor):
        return mask
    lengths, x = Sizes(run.lengths), Counted(mask.rows, mask.dims)
    for axis in x.symbolic:
        x = lengths.flatten(x, axis) if len(x.dims[axis]) > 1 else x
    key = id(mask.rows.array), x.dims
    if key not in run.chosen:  # the same array where the same mask comes again
        run.chosen[key] = mask.rows.array, lengths.fill(x, False)
    return run.chosen[key][1]


def _sorted_first(run: Run, mask: torch.Tensor) -> tuple[Any, list[JaxTensor]]:
    """Returns (how many elements a mask has, all indices of each dimension, those first)."""
    flat = mask.reshape(-1) != 0
    count, order = flat.sum(), (~flat).to(torch.uint8).argsort(stable=True)
    order = torch.where(torch.arange(flat.shape[0]) < count, order, 0)
    shape = tuple(map(sizes.to_jax, mask.shape))
    size = run.lengths.new(
        Length(count.array, math.prod(shape), diagnostics.where(), shape, 0, mask.origins)
    )
    indices, rest = [], order
    for length in reversed(mask.shape[1:]):
        length = max(length, 1)  # of none there are no places
        indices.append(rest % length)
        rest = rest // length
    return size, [rest, *indices[::-1]][: mask.dim()]


def nonzero(run: Run, op: OpOverload, x: torch.Tensor) -> Any:
    """Returns the places [count, dimensions] of what is not 0."""
    if not x.dim():
        raise Unserved("of a number")
    return run.above(torch.stack, (places(run, run.below(torch.ne, (x, 0), {})), 1), {})


def masked(run: Run, op: OpOverload, x: torch.Tensor, indices: Sequence[Any], *rest: Any) -> Any:
    """Reads and writes by masks as by places."""
    numbers: list[Any] = []
    for index in indices:
        if _is_mask(index) and not is_traced(index):
            numbers += run.below(torch.nonzero, (index,), {"as_tuple": True})
        else:
            numbers += places(run, index) if _is_mask(index) else [index]
    return run.below(op, (x, numbers, *rest), {})


def masked_select(run: Run, op: OpOverload, x: torch.Tensor, mask: torch.Tensor) -> Any:
    """Takes the elements at which a mask holds."""
    x, mask = run.below(torch.broadcast_tensors, (x, mask), {})
    if not mask.dim():
        x, mask = (run.below(torch.unsqueeze, (t, 0), {}) for t in (x, mask))
    return run.below(aten.index.Tensor, (x, [mask]), {})


def texts(
    run: Run, op: OpOverload, scores: Any, targets: Any, inputs: Any, lengths: Any, *rest
) -> Any:
    """Computes ``ctc_loss`` of texts one behind the other, ``labels[labels >= 0]``; NaN for lengths
    that are not those of the texts, which torch refuses.
    """
    ((size,),) = targets.dims
    shape = run.lengths[str(size)].shape if str(size) in run.lengths else ()
    if not isinstance(lengths, torch.Tensor) or len(shape) != 2:
        raise Unserved("of texts that no mask of rows chose")

    def loss(rows: torch.Tensor, scores: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        width = sizes.to_torch(shape)[1]
        place = (lengths.cumsum(0) - lengths)[:, None] + torch.arange(width)
        fits = (lengths <= width).all() & (lengths.sum() == Sizes(run.lengths).count(size))
        out = op(scores, rows[place.clamp(max=len(rows) - 1)], inputs, lengths, *rest)
        return out.masked_fill(~fits, float("nan"))

    return run.above(loss, (targets.rows, scores, lengths), {})


RULES: dict[Any, Callable[..., Any]] = {
    aten.ctc_loss: texts,
    aten.nonzero: nonzero,
    aten.masked_select: masked_select,
    **dict.fromkeys([aten.index, aten._unsafe_index], masked),
    **dict.fromkeys([aten.index_put, aten._unsafe_index_put], masked),
}
MASKED = {aten.index, aten._unsafe_index, aten.index_put, aten._unsafe_index_put}
