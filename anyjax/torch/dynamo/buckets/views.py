"""Other shapes, ranges, and tensors side by side."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from jax import lax

from anyjax.torch.core.lifting import array_of, lift
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.dynamo.buckets.bucketed import (
    Bucketed,
    Dim,
    Expr,
    Unbucketed,
    extent,
    is_static,
)
from anyjax.torch.dynamo.buckets.call import Call, Operand, Rule, bucketed, known, static

aten = torch.ops.aten


def view(call: Call, x: Bucketed, size: Sequence[Expr]) -> Bucketed:
    """Merges and splits dimensions."""
    sizes = [extent(dim) for dim in call.dims]
    for axis, dim in enumerate(x.dims):
        if len(dim) == 1 and not is_static(dim) and dim[0] not in sizes:
            run = _run_of(sizes, dim[0])
            x = x if run is None else call.sizes.regroup(x, axis, run)
    dims = _merge([factor for dim in x.dims for factor in dim if factor != 1], sizes)
    return Bucketed(x.tensor.reshape(call.sizes.shape(dims)), dims)


def _run_of(sizes: list[Expr], product: Expr) -> Dim | None:
    """Returns the sizes, side by side, whose product is that of a dimension; None without any."""
    for start in range(len(sizes)):
        for stop in range(start + 2, len(sizes) + 1):
            if extent(tuple(sizes[start:stop])) == product:
                factors = tuple(n for n in sizes[start:stop] if n != 1)
                return factors if len(factors) > 1 else None
    return None


def _merge(factors: list[Expr], sizes: list[Expr]) -> tuple[Dim, ...]:
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
                raise Unbucketed(f"a view of size {size}")
            factor = factors.pop(0)
            if isinstance(factor, int) and isinstance(rest, int) and factor > rest:
                if factor % rest:
                    raise Unbucketed(f"a view of size {size}")
                factors.insert(0, factor // rest)
                factor = rest
            quotient = sympy.cancel(sympy.sympify(rest) / factor)
            rest = int(quotient) if quotient.is_Integer else sympy.expand(quotient)
            dim += (factor,)
        dims.append(dim or (1,))
    if factors:
        raise Unbucketed("a view of another size")
    return tuple(dims)


def expand(call: Call, x: Operand, size: Sequence[Expr], implicit: bool = False) -> Bucketed:
    """Repeats elements without memory for them."""
    x = bucketed(x)
    dims = call.dims
    offset = len(dims) - len(x.dims)
    dims = tuple(
        dim if i < offset or extent(x.dims[i - offset]) == 1 else x.dims[i - offset]
        for i, dim in enumerate(dims)
    )
    return Bucketed(x.tensor.expand(call.sizes.shape(dims)), dims)


def repeat(call: Call, x: Operand, repeats: Sequence[Expr]) -> Bucketed:
    """Puts copies one behind the other."""
    x = bucketed(x)
    old = ((1,),) * (len(repeats) - len(x.dims)) + x.dims
    dims = tuple(
        tuple(n for n in (count, *dim) if n != 1) or (1,) for count, dim in zip(repeats, old)
    )
    return Bucketed(call.run(x, repeats), dims)


def permute(call: Call, x: Bucketed, dims: Sequence[int]) -> Bucketed:
    """Puts dimensions in another order."""
    return Bucketed(call.run(x, dims), tuple(x.dims[i] for i in dims))


def transpose(call: Call, x: Bucketed, dim0: int = 0, dim1: int = -1) -> Bucketed:
    """Exchanges two dimensions; ``t`` those of a matrix."""
    dims = [*x.dims]
    if dims:
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return Bucketed(x.tensor.transpose(dim0, dim1) if dims else x.tensor, tuple(dims))


def unsqueeze(call: Call, x: Bucketed, dim: int) -> Bucketed:
    """Inserts a dimension of one."""
    place = dim % (len(x.dims) + 1)
    return Bucketed(call.run(x, dim), (*x.dims[:place], (1,), *x.dims[place:]))


def squeeze(call: Call, x: Bucketed, dim: Any = None) -> Bucketed:
    """Drops dimensions of one."""
    axes = range(len(x.dims)) if dim is None else [dim] if isinstance(dim, int) else dim
    drop = {x.axis(i) for i in axes if extent(x.dims[x.axis(i)]) == 1}
    dims = tuple(d for i, d in enumerate(x.dims) if i not in drop)
    return Bucketed(x.tensor.reshape(call.sizes.shape(dims)), dims)


def select(call: Call, x: Operand, dim: int, index: Expr) -> Bucketed:
    """Takes one place of a dimension, counted from the end of what counts."""
    x = bucketed(x)
    axis = x.axis(dim)
    dims = (*x.dims[:axis], *x.dims[axis + 1 :])
    x = call.simple(x, axis)
    if is_static(x.dims[axis]) and isinstance(index, int):
        return Bucketed(x.tensor.select(axis, index), dims)
    if isinstance(index, int) and index >= 0:
        return Bucketed(x.tensor.select(axis, index), dims)
    place = _place(call, x, axis, index)
    return Bucketed(x.tensor.index_select(axis, place.reshape(1)).squeeze(axis), dims)


def _place(call: Call, x: Bucketed, axis: int, index: Expr) -> torch.Tensor:
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
    start: Expr | None = None,
    end: Expr | None = None,
    step: int = 1,
) -> Bucketed:
    """Takes a range of a dimension."""
    x = bucketed(x)
    axis, start = x.axis(dim), 0 if start is None else start
    if _is_whole(x, axis, start, end, step):
        return x
    x = call.simple(x, axis)
    dim_out = call.dims[axis]
    dims = (*x.dims[:axis], dim_out, *x.dims[axis + 1 :])
    (size,) = call.sizes.shape([dim_out])
    if isinstance(start, int) and (start >= 0 or is_static(x.dims[axis])):
        start = start % x.tensor.shape[axis] if start < 0 else start
        tensor = x.tensor.narrow(axis, start, x.tensor.shape[axis] - start)
        tensor = aten.slice.Tensor(tensor, axis, 0, (size - 1) * step + 1 if size else 0, step)
        missing = size - tensor.shape[axis]  # where a table ends before the bucket does
        pads = [0, 0] * (tensor.dim() - axis - 1) + [0, missing]
        return Bucketed(aten.constant_pad_nd(tensor, pads) if missing else tensor, dims)
    places = _place(call, x, axis, start) + torch.arange(size) * step
    places = places.clamp(max=x.tensor.shape[axis] - 1)
    return Bucketed(x.tensor.index_select(axis, places), dims)


def _is_whole(x: Bucketed, axis: int, start: Expr, end: Expr | None, step: int) -> bool:
    """Returns whether a range is all of a dimension."""
    is_end = end is None or end == extent(x.dims[axis]) or end == sys.maxsize
    return isinstance(start, int) and start == 0 and is_end and step == 1


def split(call: Call, x: Bucketed, sizes: Sequence[Expr], dim: int = 0) -> list[Bucketed]:
    """Splits a dimension of which all elements count."""
    axis = x.axis(dim)
    static(x, axis)
    return [_along(x, axis, tensor) for tensor in call.run(x, sizes, dim)]


def _along(x: Bucketed, axis: int, tensor: torch.Tensor) -> Bucketed:
    """Returns a tensor with the dimensions of another but for one."""
    return Bucketed(tensor, (*x.dims[:axis], (tensor.shape[axis],), *x.dims[axis + 1 :]))


def unbind(call: Call, x: Bucketed, dim: int = 0) -> list[Bucketed]:
    """Takes a dimension, of which all elements count, apart."""
    axis = x.axis(dim)
    static(x, axis)
    dims = (*x.dims[:axis], *x.dims[axis + 1 :])
    return [Bucketed(tensor, dims) for tensor in x.tensor.unbind(axis)]


def cat(call: Call, tensors: Sequence[Operand], dim: int = 0) -> Bucketed:
    """Puts what counts of tensors one behind the other; what does not is overwritten by the next,
    or comes last.
    """
    rows = [x for x in map(bucketed, tensors) if x.dims != ((0,),)]
    axis = dim % len(rows[0].dims)
    dims = [call.common(x.dims[i] for x in rows) for i in range(len(rows[0].dims)) if i != axis]
    dims.insert(axis, (1,))
    rows = [call.factored(x, [*dims[:axis], x.dims[axis], *dims[axis + 1 :]]) for x in rows]
    dims[axis] = call.dims[axis]
    if all(is_static(x.dims[axis]) for x in rows):
        return Bucketed(call.run([x.tensor for x in rows], axis), tuple(dims))
    out = torch.zeros(call.sizes.shape(dims), dtype=call.metas.dtype)
    place = torch.zeros((), dtype=torch.int64)
    for x in rows:
        x = call.simple(x, axis)
        out = _update(out, x.tensor.to(out.dtype), axis, place)
        place = place + call.sizes.count(extent(x.dims[axis]))
    return Bucketed(out, tuple(dims))


def _update(x: torch.Tensor, source: torch.Tensor, axis: int, place: torch.Tensor) -> torch.Tensor:
    """Returns a tensor with the elements of another from a place on."""
    arrays = array_of(x), array_of(source), array_of(place)
    array = lax.dynamic_update_slice_in_dim(*arrays, axis)
    return lift(JaxTensor(array, x.dtype))


def stack(call: Call, tensors: Sequence[Operand], dim: int = 0) -> Bucketed:
    """Puts tensors side by side along a new dimension."""
    rows, dims = call.broadcast(*map(bucketed, tensors))
    axis = dim % (len(dims) + 1)
    tensor = torch.stack([x.tensor for x in rows], axis)
    return Bucketed(tensor, (*dims[:axis], (len(rows),), *dims[axis:]))


def select_backward(
    call: Call, grad: Operand, sizes: Sequence[Expr], dim: int, index: Expr
) -> Bucketed:
    """Returns zeros but for the place that was taken."""
    grad = bucketed(grad)
    axis = dim % (len(grad.dims) + 1)
    dims = (*grad.dims[:axis], *call.dims[axis : axis + 1], *grad.dims[axis:])
    shape = call.sizes.shape(dims)
    empty = Bucketed(torch.zeros(()), dims)
    is_taken = torch.arange(shape[axis]) == _place(call, empty, axis, index)
    is_taken = is_taken.reshape(-1, *[1] * (len(shape) - axis - 1))
    zero = torch.zeros((), dtype=grad.tensor.dtype)
    return Bucketed(torch.where(is_taken, grad.tensor.unsqueeze(axis), zero), dims)


def slice_backward(
    call: Call, grad: Operand, sizes: Sequence[Expr], dim: int, start: Expr, end: Expr, step: Expr
) -> Bucketed:
    """Returns zeros but for the range that was taken."""
    grad = bucketed(grad)
    axis = grad.axis(dim)
    if _is_whole(Bucketed(grad.tensor, call.dims), axis, start, end, int(step)):
        return grad
    grad = call.simple(grad, axis)
    dims = (*grad.dims[:axis], call.dims[axis], *grad.dims[axis + 1 :])
    shape, tensor = call.sizes.shape(dims), call.sizes.fill(grad, 0, [axis])
    if not isinstance(start, int) or start < 0:
        static(grad, axis)
        if step != 1:
            raise Unbucketed("the gradient of a range in steps from its end on")
        zeros = torch.zeros(shape, dtype=tensor.dtype)
        place = _place(call, Bucketed(zeros, dims), axis, start)
        return Bucketed(_update(zeros, tensor, axis, place), dims)
    stop = start + (tensor.shape[axis] - 1) * step + 1 if tensor.shape[axis] else start
    return Bucketed(aten.slice_backward(tensor, shape, axis, start, stop, step), dims)


def pad(call: Call, x: Bucketed, pads: Sequence[Expr], value: float = 0) -> Bucketed:
    """Pads with a value: what does not count has it, too."""
    known((pads[::2], value))  # those on the left
    axes = [len(x.dims) - 1 - i // 2 for i, n in enumerate(pads) if n != 0]
    x = call.simple(x, *axes)
    dims = tuple(call.dims[i] if i in axes else dim for i, dim in enumerate(x.dims))
    return Bucketed(call.run(call.sizes.fill(x, value, axes), pads, value), dims)


def flip(call: Call, x: Bucketed, dims: Sequence[int]) -> Bucketed:
    """Reverses what counts of dimensions."""
    x = call.simple(x, *dims)
    tensor = x.tensor
    for axis in map(x.axis, dims):
        last = call.sizes.count(extent(x.dims[axis])) - 1
        tensor = tensor.index_select(axis, (last - torch.arange(tensor.shape[axis])).clamp(min=0))
    return Bucketed(tensor, x.dims)


def scatter_part(call: Call, x: Operand, source: Operand, dim: int, *place: Any) -> Bucketed:
    """Writes to a dimension of which all elements count: ``select_scatter`` and others."""
    x, source = bucketed(x), bucketed(source)
    axis = x.axis(dim)
    static(x, axis)
    if call.op is aten.slice_scatter.default:
        (x, source), dims = _beside(call, x, source, axis)
    else:
        spread = Bucketed(
            source.tensor.unsqueeze(axis), (*source.dims[:axis], (1,), *source.dims[axis:])
        )
        (x, spread), dims = call.broadcast(x, spread)
        source = Bucketed(spread.tensor.squeeze(axis), dims)
    return Bucketed(call.op(x.tensor, source.tensor, axis, *known(place)), dims)


def _beside(
    call: Call, x: Bucketed, source: Bucketed, axis: int
) -> tuple[list[Bucketed], tuple[Dim, ...]]:
    """Returns two tensors in the same factors but for one dimension."""
    thin = Bucketed(source.tensor, (*source.dims[:axis], (1,), *source.dims[axis + 1 :]))
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
