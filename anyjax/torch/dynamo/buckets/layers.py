"""Products, convolutions, attention, embeddings, and what works on each row by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from anyjax.torch.dynamo.buckets.bucketed import Bucketed, Dim, Expr, Unbucketed, extent, is_static
from anyjax.torch.dynamo.buckets.call import Call, Operand, Rule, bucketed, known, static

aten = torch.ops.aten


def contracted(call: Call, x: Bucketed, i: int, y: Bucketed, j: int) -> tuple[Bucketed, Bucketed]:
    """Returns two operands with zeros in place of what does not count along the dimensions that
    are summed over.
    """
    dim = call.common([x.dims[i], y.dims[j]])
    x, y = call.sizes.alike(x, i, dim), call.sizes.alike(y, j, dim)
    first, second = call.sizes.fill(x, 0, [i]), call.sizes.fill(y, 0, [j])
    return Bucketed(first, x.dims), Bucketed(second, y.dims)


def product(call: Call, x: Operand, y: Operand) -> Bucketed:
    """Multiplies matrices, batches of them, or a matrix and a vector."""
    x, y = bucketed(x), bucketed(y)
    inner = len(y.dims) - 2 if len(y.dims) > 1 else 0
    x, y = contracted(call, x, len(x.dims) - 1, y, inner)
    batch: tuple[Dim, ...] = ()
    if len(x.dims) == 3:
        dim = call.common([x.dims[0], y.dims[0]])
        x, y, batch = call.sizes.alike(x, 0, dim), call.sizes.alike(y, 0, dim), (dim,)
    dims = (*batch, *x.dims[len(batch) : -1], *y.dims[inner + 1 :])
    return Bucketed(call.op(x.tensor, y.tensor), dims)


def product_sum(
    call: Call, bias: Operand, x: Operand, y: Operand, beta: float = 1, alpha: float = 1
) -> Bucketed:
    """Adds a product to a tensor."""
    op = {2: aten.mm.default, 3: aten.bmm.default}[len(bucketed(x).dims)]
    op = op if len(bucketed(y).dims) > 1 else aten.mv.default
    out = product(Call(op, call.metas, call.sizes), x, y)
    (bias, out), dims = call.broadcast(bucketed(bias), out)
    scaled = out.tensor if alpha == 1 else out.tensor * alpha
    bias = bias.tensor if beta == 1 else bias.tensor * beta
    return Bucketed(scaled + bias if beta != 0 else scaled, dims)


def linear(call: Call, x: Operand, weight: Operand, bias: Operand | None = None) -> Bucketed:
    """Multiplies with a transposed weight, and adds a bias."""
    x, weight = contracted(call, bucketed(x), len(bucketed(x).dims) - 1, bucketed(weight), 1)
    dims = (*x.dims[:-1], weight.dims[0])
    if bias is not None:
        (bias, _), _ = call.broadcast(bucketed(bias), Bucketed(x.tensor, dims))
    return Bucketed(call.run(x, weight, bias), dims)


def convolution(
    call: Call, x: Operand, weight: Operand, bias: Operand | None, *options: Any
) -> Bucketed:
    """Convolves; what does not count is as the padding, zero."""
    x, weight = bucketed(x), bucketed(weight)
    static(weight, *range(len(weight.dims)))
    if len(x.dims) != len(weight.dims):
        raise Unbucketed("a convolution without a batch")
    static(x, 1)
    x = call.simple(x, *range(2, len(x.dims)))
    out = call.op(call.sizes.fill(x), weight.tensor, bias, *known(options))
    return Bucketed(out, (x.dims[0], *call.dims[1:]))


def convolution_backward(
    call: Call, grad: Operand, x: Operand, weight: Operand, *options: Any
) -> Any:
    """Computes the gradients of a convolution."""
    grad, x, weight = bucketed(grad), bucketed(x), bucketed(weight)
    static(weight, *range(len(weight.dims)))
    if len(x.dims) != len(weight.dims):
        raise Unbucketed("a convolution without a batch")
    batch = call.common([grad.dims[0], x.dims[0]])
    grad, x = call.sizes.alike(grad, 0, batch), call.sizes.alike(x, 0, batch)
    x = call.simple(x, *range(2, len(x.dims)))
    grad = call.simple(grad, *range(2, len(x.dims)))
    out = call.op(call.sizes.fill(grad), call.sizes.fill(x), weight.tensor, *known(options))
    return (None if out[0] is None else Bucketed(out[0], x.dims)), *out[1:]


def attention(
    call: Call,
    query: Operand,
    key: Operand,
    value: Operand,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Operand | None = None,
    scale: float | None = None,
) -> Any:
    """Computes attention to the keys that count."""
    query, key, value = _attended(call, query, key, value)
    options = _mask(call, query, key, is_causal, attn_mask)
    out = call.op(query.tensor, key.tensor, value.tensor, dropout_p, **options, scale=scale)
    dims = (*query.dims[:-1], value.dims[-1])
    return Bucketed(out[0], dims), Bucketed(out[1], query.dims[:-1])


def attention_backward(
    call: Call,
    grad: Operand,
    query: Operand,
    key: Operand,
    value: Operand,
    out: Operand,
    logsumexp: Operand,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Operand | None = None,
    scale: float | None = None,
) -> Any:
    """Computes the gradients of attention."""
    query, key, value = _attended(call, query, key, value)
    options = _mask(call, query, key, is_causal, attn_mask)
    rows = [call.factored(bucketed(x), query.dims) for x in (grad, out)]
    totals = call.factored(bucketed(logsumexp), query.dims[:-1])
    tensors = [query.tensor, key.tensor, value.tensor]
    grads = call.op(
        call.sizes.fill(rows[0]), *tensors, call.sizes.fill(rows[1]), call.sizes.fill(totals),
        dropout_p, **options, scale=scale,
    )  # fmt: skip
    return tuple(Bucketed(x, y.dims) for x, y in zip(grads, (query, key, value)))


def _attended(call: Call, *tensors: Any) -> list[Bucketed]:
    """Returns query, key and value with zeros for what does not count."""
    query, key, value = map(bucketed, tensors)
    for axis in (0, 1):
        dim = call.common([x.dims[axis] for x in (query, key, value)])
        query, key, value = (call.sizes.alike(x, axis, dim) for x in (query, key, value))
    length = call.common([key.dims[2], value.dims[2]])
    key, value = call.sizes.alike(key, 2, length), call.sizes.alike(value, 2, length)
    query, key, value = (call.simple(x, 2) for x in (query, key, value))
    static(query, 3)
    return [Bucketed(call.sizes.fill(x), x.dims) for x in (query, key, value)]


def _mask(
    call: Call, query: Bucketed, key: Bucketed, is_causal: bool, attn_mask: Operand | None
) -> dict[str, Any]:
    """Returns a mask of the keys that count; before those that do not, causal ones end."""
    mask = None
    if attn_mask is not None:
        dims = (*query.dims[:3], key.dims[2])
        mask = bucketed(attn_mask)
        mask = call.factored(mask, dims[4 - len(mask.dims) :]).tensor
        if mask.dtype is torch.bool:
            raise Unbucketed("a mask of bools")
    if is_static(key.dims[2]) or (is_causal and query.dims[2] == key.dims[2]):
        return {"is_causal": is_causal, "attn_mask": mask}
    length, dtype = query.tensor.shape[2], query.tensor.dtype
    counts = call.sizes.mask(key.dims[2]).expand(length, -1)
    counts = counts.tril() if is_causal else counts
    bias = torch.zeros((), dtype=dtype) if mask is None else mask
    least = torch.full((), -math.inf, dtype=dtype)
    return {"is_causal": False, "attn_mask": torch.where(counts, bias, least)}


def embedding(call: Call, weight: Operand, indices: Operand, *options: Any) -> Bucketed:
    """Looks rows of a table up."""
    weight, indices = bucketed(weight), bucketed(indices)
    weight = call.simple(weight, 0)
    return Bucketed(
        call.op(weight.tensor, indices.tensor, *options), (*indices.dims, weight.dims[1])
    )


def embedding_backward(
    call: Call, grad: Operand, indices: Operand, count: Expr, padding: int, by_frequency: bool
) -> Any:
    """Adds the gradients of the rows of a table up."""
    grad, indices = bucketed(grad), bucketed(indices)
    if by_frequency or not isinstance(count, int):
        raise Unbucketed("gradients divided by how often an index comes")
    dims = [call.common(pair) for pair in zip(grad.dims, indices.dims)]
    grad, indices = call.factored(grad, [*dims, grad.dims[-1]]), call.factored(indices, dims)
    return call.op(call.sizes.fill(grad), indices.tensor, count, padding, by_frequency)


def index(call: Call, x: Operand, indices: Sequence[Operand | None]) -> Bucketed:
    """Takes elements by indices; negative ones count from the end of what counts."""
    x = bucketed(x)
    axes = [i for i, place in enumerate(indices) if place is not None]
    x = call.simple(x, *axes)
    places, dims = call.broadcast(*(bucketed(indices[i]) for i in axes))
    if any(place.tensor.dtype is torch.bool for place in places):
        raise Unbucketed("a mask")
    items: list[Any] = list(indices)
    for axis, place in zip(axes, places):
        items[axis] = _from_front(call, x, axis, place.tensor)
    rest = [dim for i, dim in enumerate(x.dims) if i not in axes]
    first = axes[0] if axes == [*range(axes[0], axes[-1] + 1)] else 0
    return Bucketed(call.op(x.tensor, items), (*rest[:first], *dims, *rest[first:]))


def _from_front(call: Call, x: Bucketed, axis: int, place: torch.Tensor) -> torch.Tensor:
    """Returns indices of a dimension as those from the front."""
    if is_static(x.dims[axis]):
        return place
    return torch.where(place < 0, place + call.sizes.count(extent(x.dims[axis])), place)


def index_put(
    call: Call, x: Operand, indices: Sequence[Operand | None], values: Operand, add: bool = False
) -> Any:
    """Adds values at indices; what does not count adds zero."""
    x, values = bucketed(x), bucketed(values)
    axes = [i for i, place in enumerate(indices) if place is not None]
    x = call.simple(x, *axes)
    places, dims = call.broadcast(*(bucketed(indices[i]) for i in axes))
    if not add or axes != [*range(len(axes))] or any(p.tensor.dtype is torch.bool for p in places):
        raise Unbucketed("writes by index")
    dims = (*dims, *x.dims[len(axes) :])
    values = call.factored(values, dims[len(dims) - len(values.dims) :])
    spread = values.tensor.expand(call.sizes.shape(dims))
    spread = call.sizes.fill(Bucketed(spread, dims))
    items: list[Any] = [_from_front(call, x, i, p.tensor) for i, p in zip(axes, places)]
    return Bucketed(call.op(x.tensor, items, spread, add), x.dims)


def index_select(call: Call, x: Operand, dim: int, places: Operand) -> Bucketed:
    """Takes elements of a dimension."""
    x, places = bucketed(x), bucketed(places)
    axis = x.axis(dim)
    x = call.simple(x, axis)
    dims = (*x.dims[:axis], *places.dims, *x.dims[axis + 1 :])
    return Bucketed(call.op(x.tensor, axis, places.tensor), dims)


def gather(call: Call, x: Operand, dim: int, places: Operand, **options: Any) -> Bucketed:
    """Takes an element of a dimension for each index."""
    x, places = bucketed(x), bucketed(places)
    axis = x.axis(dim)
    x = call.simple(x, axis)
    if any(i != axis and x.dims[i] != places.dims[i] for i in range(len(x.dims))):
        raise Unbucketed("indices of another size")
    return Bucketed(call.op(x.tensor, axis, places.tensor, **options), places.dims)


def scatter(call: Call, x: Operand, dim: int, places: Operand, source: Operand) -> Bucketed:
    """Writes elements of a dimension at indices, of which all count along it."""
    x, places = bucketed(x), bucketed(places)
    axis = x.axis(dim)
    static(places, axis)
    x = call.simple(x, axis)
    same = not isinstance(source, Bucketed) or source.dims == places.dims
    if not same or any(x.dims[i] != d for i, d in enumerate(places.dims) if i != axis):
        raise Unbucketed("indices of another size")
    return Bucketed(call.run(x, axis, places, source), x.dims)


def scatter_add(call: Call, x: Operand, dim: int, places: Operand, source: Operand) -> Bucketed:
    """Adds elements of a dimension at indices; what does not count adds zero."""
    x, places, source = bucketed(x), bucketed(places), bucketed(source)
    axis = x.axis(dim)
    x = call.simple(x, axis)
    rest = all(x.dims[i] == d for i, d in enumerate(places.dims) if i != axis)
    if places.dims != source.dims or not rest:
        raise Unbucketed("indices of another size")
    return Bucketed(call.op(x.tensor, dim, places.tensor, call.sizes.fill(source)), x.dims)


def index_add(
    call: Call, x: Operand, dim: int, places: Operand, source: Operand, alpha: float = 1
) -> Bucketed:
    """Adds rows of a dimension at indices; what does not count adds zero."""
    x, places, source = bucketed(x), bucketed(places), bucketed(source)
    axis = x.axis(dim)
    x = call.simple(x, axis)
    if source.dims != (*x.dims[:axis], *places.dims, *x.dims[axis + 1 :]):
        raise Unbucketed("rows of another size")
    tensor = call.op(x.tensor, axis, places.tensor, call.sizes.fill(source, 0, [axis]), alpha=alpha)
    return Bucketed(tensor, x.dims)


def rows(axes: Callable[[Bucketed, Sequence[Any]], Sequence[int]]) -> Callable[..., Any]:
    """Returns the rule of an operator along some dimensions, of which all elements count, that
    works on each row along them by itself.
    """

    def rule(call: Call, x: Operand, *args: Any, **kwargs: Any) -> Any:
        if "dim" in kwargs:
            raise Unbucketed("a dimension by its name")
        x = bucketed(x)
        row = {x.axis(i) for i in axes(x, args)}
        static(x, *row)
        for y in args:
            if isinstance(y, Bucketed) and [y.dims[i] for i in y.symbolic] != [
                x.dims[i] for i in x.symbolic
            ]:
                raise Unbucketed("rows of another number")
        return _of_rows(x, row, call.run(x, *args, **kwargs))

    return rule


def _of_rows(x: Bucketed, row: set[int], out: Any) -> Any:
    """Returns results with the dimensions of an argument but for those of a row."""
    if not isinstance(out, torch.Tensor):
        return tuple(_of_rows(x, row, y) for y in out)
    sizes = out.shape
    dims = tuple((sizes[i],) if i in row else dim for i, dim in enumerate(x.dims))
    return Bucketed(out, dims)


def _last(count: int) -> Callable[..., range]:
    return lambda x, args: range(len(x.dims) - count, len(x.dims))


ROWS = {
    1: [aten.avg_pool1d, aten.max_pool1d_with_indices, aten.upsample_nearest1d],
    2: [
        aten.avg_pool2d, aten.avg_pool2d_backward, aten.max_pool2d_with_indices,
        aten.max_pool2d_with_indices_backward, aten._adaptive_avg_pool2d,
        aten._adaptive_avg_pool2d_backward, aten.upsample_nearest2d, aten.upsample_bilinear2d,
        aten.upsample_bicubic2d, aten.reflection_pad2d, aten.replication_pad2d,
    ],
    3: [
        aten.avg_pool3d, aten.max_pool3d_with_indices, aten._adaptive_avg_pool3d,
        aten.pixel_shuffle, aten.pixel_unshuffle, aten.upsample_nearest3d,
    ],
}  # fmt: skip
# Those whose dimensions come first among the arguments.
ALONG = [
    aten.sort.default, aten._fft_c2c, aten._fft_r2c, aten._fft_c2r, aten.glu,
]  # fmt: skip


def _first(x: Bucketed, args: Sequence[Any]) -> Sequence[int]:
    """Returns the dimensions that are the first argument, the last one without any."""
    first = args[0] if args else -1
    return [first] if isinstance(first, int) else first


RULES: dict[Any, Rule] = {
    **dict.fromkeys([aten.mm, aten.bmm, aten.mv, aten.dot], product),
    **dict.fromkeys([aten.addmm, aten.baddbmm, aten.addmv], product_sum),
    **{op: rows(_last(count)) for count, ops in ROWS.items() for op in ops},
    **dict.fromkeys(ALONG, rows(_first)),
    aten.topk: rows(lambda x, args: args[1:2] or [-1]),
    aten.linear: linear,
    aten.convolution: convolution,
    aten.convolution_backward: convolution_backward,
    aten._scaled_dot_product_flash_attention_for_cpu: attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
    aten.embedding: embedding,
    aten.embedding_dense_backward: embedding_backward,
    aten.index.Tensor: index,
    aten._unsafe_index: index,
    aten.index_put: index_put,
    aten._unsafe_index_put: index_put,
    aten.index_select: index_select,
    aten.gather: gather,
    aten.scatter.src: scatter,
    aten.scatter.value: scatter,
    aten.scatter_add: scatter_add,
    aten.index_add: index_add,
}
