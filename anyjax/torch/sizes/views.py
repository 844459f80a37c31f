"""Other shapes, ranges, and tensors side by side."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from typing import Any

import torch
from jax import lax

from anyjax.torch.core.lengths import Size, decided
from anyjax.torch.core.lifting import array_of
from anyjax.torch.core.sizes import at_least, extreme, to_jax
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.sizes.call import Call, Operand, Rule, counted, known, static
from anyjax.torch.sizes.counted import (
    Counted,
    Dim,
    Unserved,
    extent,
    is_static,
)

aten = torch.ops.aten


def view(call: Call, x: Counted, size: Sequence[Size]) -> Counted:
    """Merges and splits dimensions."""
    sizes = [extent(dim) for dim in call.dims]
    for axis, dim in enumerate(x.dims):
        if len(dim) == 1 and not is_static(dim) and dim[0] not in sizes:
            run = _run_of(sizes, dim[0]) or _equal_parts(call, sizes, x, axis)
            x = x if run is None else call.sizes.regroup(x, axis, run)
    dims = _merge([factor for dim in x.dims for factor in dim if factor != 1], sizes)
    return Counted(x.tensor.reshape(call.sizes.shape(dims)), dims)


def _equal_parts(call: Call, sizes: list[Size], x: Counted, axis: int) -> Dim | None:
    """Returns the sizes of as many equal parts as a number says, as ``x[mask].view(batch, -1)`` has
    them; the program checks that the parts are equal.
    """
    ((size,), *others) = x.dims[axis:]
    width = math.prod(map(extent, others))
    for i, number in enumerate(sizes[:-1]):
        parts = [] if decided(number) or number == 1 else [size // number]
        parts += [size * width // (number * width)] if parts else []
        if sizes[i + 1] in parts:
            count = call.sizes.count(size)
            call.check(lambda: count % call.sizes.count(sizes[i]) == 0, x, [axis])  # noqa: B023
            return number, sizes[i + 1]
    return None


def _run_of(sizes: list[Size], product: Size) -> Dim | None:
    """Returns the sizes, side by side, whose product is that of a dimension; None without any."""
    for start in range(len(sizes)):
        for stop in range(start + 2, len(sizes) + 1):
            if extent(tuple(sizes[start:stop])) == product:
                factors = tuple(n for n in sizes[start:stop] if n != 1)
                return factors if len(factors) > 1 else None
    return None


def _merge(factors: list[Size], sizes: list[Size]) -> tuple[Dim, ...]:
    """Returns factors as the dimensions of a shape; numbers side by side are split anew."""
    factors = [
        x
        for is_number, group in itertools.groupby(factors, lambda x: isinstance(x, int))
        for x in ([math.prod(group)] if is_number else group)
    ]
    dims = []
    for size in sizes:
        dim: Dim = ()
        rest = size
        while rest != 1:
            if not factors:
                raise Unserved(f"a view of size {size}")
            factor = factors.pop(0)
            if isinstance(factor, int) and isinstance(rest, int) and factor > rest:
                if factor % rest:
                    raise Unserved(f"a view of size {size}")
                factors.insert(0, factor // rest)
                factor = rest
            rest, remainder = divmod(rest, factor)
            if not isinstance(remainder, int) or remainder:
                raise Unserved(f"a view of size {size}")
            dim += (factor,)
        dims.append(dim or (1,))
    if factors:
        raise Unserved("a view of another size")
    return tuple(dims)


def expand(call: Call, x: Operand, size: Sequence[Size], implicit: bool = False) -> Counted:
    """Repeats elements without memory for them."""
    x = counted(x)
    dims = call.dims
    offset = len(dims) - len(x.dims)
    dims = tuple(
        dim if i < offset or extent(x.dims[i - offset]) == 1 else x.dims[i - offset]
        for i, dim in enumerate(dims)
    )
    return Counted(x.tensor.expand(call.sizes.shape(dims)), dims)


def repeat(call: Call, x: Operand, repeats: Sequence[Size]) -> Counted:
    """Puts copies one behind the other."""
    x = counted(x)
    old = ((1,),) * (len(repeats) - len(x.dims)) + x.dims
    dims = tuple(
        tuple(n for n in (count, *dim) if n != 1) or (1,) for count, dim in zip(repeats, old)
    )
    return Counted(call.run(x, repeats), dims)


def permute(call: Call, x: Counted, dims: Sequence[int]) -> Counted:
    """Puts dimensions in another order."""
    return Counted(call.run(x, dims), tuple(x.dims[i] for i in dims))


def transpose(call: Call, x: Counted, dim0: int = 0, dim1: int = -1) -> Counted:
    """Exchanges two dimensions; ``t`` those of a matrix."""
    dims = [*x.dims]
    if dims:
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return Counted(x.tensor.transpose(dim0, dim1) if dims else x.tensor, tuple(dims))


def unsqueeze(call: Call, x: Counted, dim: int) -> Counted:
    """Inserts a dimension of one."""
    place = dim % (len(x.dims) + 1)
    return Counted(call.run(x, dim), (*x.dims[:place], (1,), *x.dims[place:]))


def squeeze(call: Call, x: Counted, dim: Any = None) -> Counted:
    """Drops dimensions of one."""
    axes = range(len(x.dims)) if dim is None else [dim] if isinstance(dim, int) else dim
    drop = {x.axis(i) for i in axes if extent(x.dims[x.axis(i)]) == 1}
    dims = tuple(d for i, d in enumerate(x.dims) if i not in drop)
    return Counted(x.tensor.reshape(call.sizes.shape(dims)), dims)


def select(call: Call, x: Operand, dim: int, index: Size) -> Counted:
    """Takes one place of a dimension, counted from the end of what counts."""
    x = counted(x)
    axis = x.axis(dim)
    dims = (*x.dims[:axis], *x.dims[axis + 1 :])
    x = call.simple(x, axis)
    if is_static(x.dims[axis]) and isinstance(index, int):
        return Counted(x.tensor.select(axis, index), dims)
    if isinstance(index, int) and index >= 0:
        return Counted(x.tensor.select(axis, index), dims)
    place = _place(call, x, axis, index)
    return Counted(x.tensor.index_select(axis, place.reshape(1)).squeeze(axis), dims)


def _place(call: Call, x: Counted, axis: int, index: Size) -> torch.Tensor:
    """Returns an index of a dimension as a traced number, counted from the front."""
    place = call.number(index)
    count = call.sizes.count(extent(x.dims[axis]))
    if isinstance(place, int):
        return torch.as_tensor(place + count if place < 0 else place)
    return torch.where(place < 0, place + count, place)


def slice_(
    call: Call,
    x: Operand,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> Counted:
    """Takes a range of a dimension."""
    x = counted(x)
    axis, start = x.axis(dim), 0 if start is None else start
    if _is_whole(x, axis, start, end, step):
        return x
    x = call.simple(x, axis)
    dim_out = (_length(extent(x.dims[axis]), start, end, step),)
    dims = (*x.dims[:axis], dim_out, *x.dims[axis + 1 :])
    (size,) = call.sizes.shape([dim_out])
    if isinstance(start, int) and (start >= 0 or is_static(x.dims[axis])):
        length = x.tensor.shape[axis]
        start = max(start + length, 0) if start < 0 else min(start, length)
        tensor = x.tensor.narrow(axis, start, x.tensor.shape[axis] - start)
        tensor = aten.slice.Tensor(tensor, axis, 0, (size - 1) * step + 1 if size else 0, step)
        missing = size - tensor.shape[axis]  # where a table ends before the bucket does
        pads = [0, 0] * (tensor.dim() - axis - 1) + [0, missing]
        return Counted(aten.constant_pad_nd(tensor, pads) if missing else tensor, dims)
    places = _place(call, x, axis, start).clamp(min=0) + torch.arange(size) * step
    places = places.clamp(max=max(x.tensor.shape[axis] - 1, 0))
    return Counted(x.tensor.index_select(axis, places), dims)


def _length(size: Size, start: Size, end: Size | None, step: int) -> Size:
    """Returns how many elements a range of a dimension has."""

    def place(index: Size) -> Size:
        if at_least(-index, 1):
            return extreme("max", size + index, 0)
        if not at_least(index, 0):
            raise Unserved("a range to a place that may count from the end")
        return extreme("min", index, size)

    last = size if end is None or end is sys.maxsize else place(end)
    return extreme("max", (last - place(start) + step - 1) // step, 0)


def _is_whole(x: Counted, axis: int, start: Size, end: Size | None, step: int) -> bool:
    """Returns whether a range is all of a dimension."""
    is_end = end is None or end == extent(x.dims[axis]) or end == sys.maxsize
    return isinstance(start, int) and start == 0 and is_end and step == 1


def split(call: Call, x: Operand, sizes: Size | Sequence[Size], dim: int = 0) -> list[Counted]:
    """Splits a dimension; where values decide how much of it counts, into parts of these sizes."""
    x = counted(x)
    axis = x.axis(dim)
    if isinstance(sizes, Sequence) and any(map(decided, sizes)):
        x, starts = call.simple(x, axis), [0, *itertools.accumulate(sizes)]
        return [_from(call, x, axis, start, size) for start, size in zip(starts, sizes)]
    static(x, axis)
    return [_along(x, axis, tensor) for tensor in call.run(x, sizes, dim)]


def _from(call: Call, x: Counted, axis: int, start: Size, size: Size) -> Counted:
    """Returns so many elements of a dimension from a place on."""
    places = torch.arange(call.sizes.padded(size)) + call.sizes.count(start)
    tensor = x.tensor.index_select(axis, places.clamp(max=max(x.tensor.shape[axis] - 1, 0)))
    return Counted(tensor, (*x.dims[:axis], (size,), *x.dims[axis + 1 :]))


def _along(x: Counted, axis: int, tensor: torch.Tensor) -> Counted:
    """Returns a tensor with the dimensions of another but for one."""
    return Counted(tensor, (*x.dims[:axis], (to_jax(tensor.shape[axis]),), *x.dims[axis + 1 :]))


def unbind(call: Call, x: Counted, dim: int = 0) -> list[Counted]:
    """Takes a dimension, of which all elements count, apart."""
    axis = x.axis(dim)
    static(x, axis)
    dims = (*x.dims[:axis], *x.dims[axis + 1 :])
    return [Counted(tensor, dims) for tensor in x.tensor.unbind(axis)]


def cat(call: Call, tensors: Sequence[Operand], dim: int = 0) -> Counted:
    """Puts what counts of tensors one behind the other; what does not comes last."""
    rows = [x for x in map(counted, tensors) if x.dims != ((0,),)]
    axis = dim % len(rows[0].dims)
    dims = [call.common(x.dims[i] for x in rows) for i in range(len(rows[0].dims)) if i != axis]
    dims.insert(axis, (1,))
    rows = [call.factored(x, [*dims[:axis], x.dims[axis], *dims[axis + 1 :]]) for x in rows]
    dims[axis] = call.dims[axis]
    rows = [call.simple(x, axis) for x in rows]
    out = torch.cat([x.tensor for x in rows], axis)
    if all(is_static(x.dims[axis]) for x in rows):
        return Counted(out, tuple(dims))
    first = torch.arange(call.sizes.shape([dims[axis]])[0])
    place, end = first, torch.zeros((), dtype=torch.int64)
    for x in rows[:-1]:
        count = call.sizes.count(extent(x.dims[axis]))
        end = end + count
        place = place + torch.where(first >= end, x.tensor.shape[axis] - count, 0)
    return Counted(out.index_select(axis, place.clamp(max=out.shape[axis] - 1)), tuple(dims))


def _update(x: torch.Tensor, source: torch.Tensor, axis: int, place: torch.Tensor) -> torch.Tensor:
    """Returns a tensor with the elements of another from a place on."""
    arrays = array_of(x), array_of(source), array_of(place)
    array = lax.dynamic_update_slice_in_dim(*arrays, axis)
    return JaxTensor(array, x.dtype)


def stack(call: Call, tensors: Sequence[Operand], dim: int = 0) -> Counted:
    """Puts tensors side by side along a new dimension."""
    rows, dims = call.broadcast(*map(counted, tensors))
    axis = dim % (len(dims) + 1)
    tensor = torch.stack([x.tensor for x in rows], axis)
    return Counted(tensor, (*dims[:axis], (len(rows),), *dims[axis:]))


def select_backward(
    call: Call, grad: Operand, sizes: Sequence[Size], dim: int, index: Size
) -> Counted:
    """Returns zeros but for the place that was taken."""
    grad = counted(grad)
    axis = dim % (len(grad.dims) + 1)
    dims = (*grad.dims[:axis], *call.dims[axis : axis + 1], *grad.dims[axis:])
    shape = call.sizes.shape(dims)
    empty = Counted(torch.zeros(()), dims)
    is_taken = torch.arange(shape[axis]) == _place(call, empty, axis, index)
    is_taken = is_taken.reshape(-1, *[1] * (len(shape) - axis - 1))
    zero = torch.zeros((), dtype=grad.tensor.dtype)
    return Counted(torch.where(is_taken, grad.tensor.unsqueeze(axis), zero), dims)


def slice_backward(
    call: Call, grad: Operand, sizes: Sequence[Size], dim: int, start: Size, end: Size, step: Size
) -> Counted:
    """Returns zeros but for the range that was taken."""
    grad = counted(grad)
    axis = grad.axis(dim)
    if _is_whole(Counted(grad.tensor, call.dims), axis, start, end, int(step)):
        return grad
    grad = call.simple(grad, axis)
    dims = (*grad.dims[:axis], call.dims[axis], *grad.dims[axis + 1 :])
    shape, tensor = call.sizes.shape(dims), call.sizes.fill(grad, 0, [axis])
    if not isinstance(start, int) or start < 0:
        static(grad, axis)
        if step != 1:
            raise Unserved("the gradient of a range in steps from its end on")
        zeros = torch.zeros(shape, dtype=tensor.dtype)
        place = _place(call, Counted(zeros, dims), axis, start)
        return Counted(_update(zeros, tensor, axis, place), dims)
    stop = start + (tensor.shape[axis] - 1) * step + 1 if tensor.shape[axis] else start
    return Counted(aten.slice_backward(tensor, shape, axis, start, stop, step), dims)


def pad(call: Call, x: Counted, pads: Sequence[Size], value: float = 0) -> Counted:
    """Pads with a value: what does not count has it, too."""
    known((pads[::2], value))  # those on the left
    axes = [len(x.dims) - 1 - i // 2 for i, n in enumerate(pads) if n != 0]
    x = call.simple(x, *axes)
    dims = tuple(call.dims[i] if i in axes else dim for i, dim in enumerate(x.dims))
    return Counted(call.run(call.sizes.fill(x, value, axes), pads, value), dims)


def flip(call: Call, x: Counted, dims: Sequence[int]) -> Counted:
    """Reverses what counts of dimensions."""
    x = call.simple(x, *dims)
    tensor = x.tensor
    for axis in map(x.axis, dims):
        last = call.sizes.count(extent(x.dims[axis])) - 1
        tensor = tensor.index_select(axis, (last - torch.arange(tensor.shape[axis])).clamp(min=0))
    return Counted(tensor, x.dims)


def scatter_part(call: Call, x: Operand, source: Operand, dim: int, *place: Any) -> Counted:
    """Writes to a dimension of which all elements count: ``select_scatter`` and others."""
    x, source = counted(x), counted(source)
    axis = x.axis(dim)
    static(x, axis)
    if call.op is aten.slice_scatter.default:
        (x, source), dims = _beside(call, x, source, axis)
    else:
        spread = Counted(
            source.tensor.unsqueeze(axis), (*source.dims[:axis], (1,), *source.dims[axis:])
        )
        (x, spread), dims = call.broadcast(x, spread)
        source = Counted(spread.tensor.squeeze(axis), dims)
    return Counted(call.op(x.tensor, source.tensor, axis, *known(place)), dims)


def _beside(
    call: Call, x: Counted, source: Counted, axis: int
) -> tuple[list[Counted], tuple[Dim, ...]]:
    """Returns two tensors in the same factors but for one dimension."""
    thin = Counted(source.tensor, (*source.dims[:axis], (1,), *source.dims[axis + 1 :]))
    static(source, axis)
    _, dims = call.broadcast(x, thin)
    return [call.factored(x, dims), call.factored(thin, dims)], dims


RULES: dict[Any, Rule] = {
    aten.view.default: view,
    aten._unsafe_view: view,
    aten.reshape: view,
    aten.expand: expand,
    aten.repeat: repeat,
    aten.permute: permute,
    aten.t: transpose,
    aten.transpose.int: transpose,
    aten.unsqueeze: unsqueeze,
    aten.squeeze: squeeze,
    aten.select.int: select,
    aten.slice.Tensor: slice_,
    aten.split.Tensor: split,
    aten.split_with_sizes: split,
    aten.unbind.int: unbind,
    aten.cat: cat,
    aten.stack: stack,
    aten.select_backward: select_backward,
    aten.slice_backward: slice_backward,
    aten.constant_pad_nd: pad,
    aten.flip: flip,
    aten.select_scatter: scatter_part,
    aten.slice_scatter: scatter_part,
}
