"""Products, convolutions, attention, embeddings, and what works on each row by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from anyjax.torch.core.lengths import Size
from anyjax.torch.core.sizes import to_jax
from anyjax.torch.sizes.call import Call, Operand, Rule, counted, known, static
from anyjax.torch.sizes.counted import Counted, Dim, Unserved, is_static
from anyjax.typing import PyTree

aten = torch.ops.aten


def contracted(call: Call, x: Counted, i: int, y: Counted, j: int) -> tuple[Counted, Counted]:
    """Returns two operands with zeros in place of what does not count along the dimensions that
    are summed over.
    """
    dim = call.common([x.dims[i], y.dims[j]])
    x, y = call.sizes.alike(x, i, dim), call.sizes.alike(y, j, dim)
    first, second = call.sizes.fill(x, 0, [i]), call.sizes.fill(y, 0, [j])
    return Counted(first, x.dims), Counted(second, y.dims)


def product(call: Call, x: Operand, y: Operand) -> Counted:
    """Multiplies matrices, batches of them, or a matrix and a vector."""
    x, y = counted(x), counted(y)
    inner = len(y.dims) - 2 if len(y.dims) > 1 else 0
    x, y = contracted(call, x, len(x.dims) - 1, y, inner)
    batch: tuple[Dim, ...] = ()
    if len(x.dims) == 3:
        dim = call.common([x.dims[0], y.dims[0]])
        x, y, batch = call.sizes.alike(x, 0, dim), call.sizes.alike(y, 0, dim), (dim,)
    dims = (*batch, *x.dims[len(batch) : -1], *y.dims[inner + 1 :])
    return Counted(call.op(x.tensor, y.tensor), dims)


def product_sum(
    call: Call, bias: Operand, x: Operand, y: Operand, beta: float = 1, alpha: float = 1
) -> Counted:
    """Adds a product to a tensor."""
    op = {2: aten.mm.default, 3: aten.bmm.default}[len(counted(x).dims)]
    op = op if len(counted(y).dims) > 1 else aten.mv.default
    out = product(Call(op, call.metas, call.sizes), x, y)
    (bias, out), dims = call.broadcast(counted(bias), out)
    scaled = out.tensor if alpha == 1 else out.tensor * alpha
    bias = bias.tensor if beta == 1 else bias.tensor * beta
    return Counted(scaled + bias if beta != 0 else scaled, dims)


def linear(call: Call, x: Operand, weight: Operand, bias: Operand | None = None) -> Counted:
    """Multiplies with a transposed weight, and adds a bias."""
    x, weight = contracted(call, counted(x), len(counted(x).dims) - 1, counted(weight), 1)
    dims = (*x.dims[:-1], weight.dims[0])
    if bias is not None:
        (bias, _), _ = call.broadcast(counted(bias), Counted(x.tensor, dims))
    return Counted(call.run(x, weight, bias), dims)


def convolution(
    call: Call, x: Operand, weight: Operand, bias: Operand | None, *options: Any
) -> Counted:
    """Convolves; what does not count is as the padding, zero."""
    x, weight = counted(x), counted(weight)
    static(weight, *range(len(weight.dims)))
    if len(x.dims) != len(weight.dims):
        raise Unserved("a convolution without a batch")
    static(x, 1)
    x = call.simple(x, *range(2, len(x.dims)))
    out = call.op(call.sizes.fill(x), weight.tensor, bias, *known(options))
    return Counted(out, (x.dims[0], *call.dims[1:]))


def convolution_backward(
    call: Call, grad: Operand, x: Operand, weight: Operand, *options: Any
) -> Any:
    """Computes the gradients of a convolution."""
    grad, x, weight = counted(grad), counted(x), counted(weight)
    static(weight, *range(len(weight.dims)))
    if len(x.dims) != len(weight.dims):
        raise Unserved("a convolution without a batch")
    batch = call.common([grad.dims[0], x.dims[0]])
    grad, x = call.sizes.alike(grad, 0, batch), call.sizes.alike(x, 0, batch)
    x = call.simple(x, *range(2, len(x.dims)))
    grad = call.simple(grad, *range(2, len(x.dims)))
    out = call.op(call.sizes.fill(grad), call.sizes.fill(x), weight.tensor, *known(options))
    return (None if out[0] is None else Counted(out[0], x.dims)), *out[1:]


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
    return Counted(out[0], dims), Counted(out[1], query.dims[:-1])


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
    rows = [call.factored(counted(x), query.dims) for x in (grad, out)]
    totals = call.factored(counted(logsumexp), query.dims[:-1])
    tensors = [query.tensor, key.tensor, value.tensor]
    grads = call.op(
        call.sizes.fill(rows[0]), *tensors, call.sizes.fill(rows[1]), call.sizes.fill(totals),
        dropout_p, **options, scale=scale,
    )  # fmt: skip
    return tuple(Counted(x, y.dims) for x, y in zip(grads, (query, key, value)))


def _attended(call: Call, *tensors: Any) -> list[Counted]:
    """Returns query, key and value with zeros for what does not count."""
    query, key, value = map(counted, tensors)
    for axis in (0, 1):
        dim = call.common([x.dims[axis] for x in (query, key, value)])
        query, key, value = (call.sizes.alike(x, axis, dim) for x in (query, key, value))
    length = call.common([key.dims[2], value.dims[2]])
    key, value = call.sizes.alike(key, 2, length), call.sizes.alike(value, 2, length)
    query, key, value = (call.simple(x, 2) for x in (query, key, value))
    static(query, 3)
    return [Counted(call.sizes.fill(x), x.dims) for x in (query, key, value)]


def _mask(
    call: Call, query: Counted, key: Counted, is_causal: bool, attn_mask: Operand | None
) -> dict[str, Any]:
    """Returns a mask of the keys that count; before those that do not, causal ones end."""
    mask = None
    if attn_mask is not None:
        dims = (*query.dims[:3], key.dims[2])
        mask = counted(attn_mask)
        mask = call.factored(mask, dims[4 - len(mask.dims) :]).tensor
        if mask.dtype is torch.bool:
            raise Unserved("a mask of bools")
    if is_static(key.dims[2]) or (is_causal and query.dims[2] == key.dims[2]):
        return {"is_causal": is_causal, "attn_mask": mask}
    length, dtype = query.tensor.shape[2], query.tensor.dtype
    counts = call.sizes.mask(key.dims[2]).expand(length, -1)
    counts = counts.tril() if is_causal else counts
    bias = torch.zeros((), dtype=dtype) if mask is None else mask
    least = torch.full((), -math.inf, dtype=dtype)
    return {"is_causal": False, "attn_mask": torch.where(counts, bias, least)}


def embedding(call: Call, weight: Operand, indices: Operand, *options: Any) -> Counted:
    """Looks rows of a table up."""
    weight, indices = counted(weight), counted(indices)
    weight = call.simple(weight, 0)
    return Counted(
        call.op(weight.tensor, indices.tensor, *options), (*indices.dims, weight.dims[1])
    )


def embedding_backward(
    call: Call, grad: Operand, indices: Operand, count: Size, padding: int, by_frequency: bool
) -> Any:
    """Adds the gradients of the rows of a table up."""
    grad, indices = counted(grad), counted(indices)
    if by_frequency or not isinstance(count, int):
        raise Unserved("gradients divided by how often an index comes")
    dims = [call.common(pair) for pair in zip(grad.dims, indices.dims)]
    grad, indices = call.factored(grad, [*dims, grad.dims[-1]]), call.factored(indices, dims)
    return call.op(call.sizes.fill(grad), indices.tensor, count, padding, by_frequency)


def regions(call: Call, x: Operand, boxes: Operand, *options: Any) -> Any:
    """Pools regions of images, each by itself (``roi_align`` and its like)."""
    boxes = call.simple(counted(boxes), 0)
    static(counted(x), *range(len(counted(x).dims)))
    first, *rest = pytree.tree_leaves(call.run(x, boxes, *options))
    results = [Counted(y, (boxes.dims[0], *counted(y).dims[1:])) for y in (first, *rest)]
    return tuple(results) if rest else results[0]


def rows(axes: Callable[[Counted, Sequence[Any]], Sequence[int]]) -> Callable[..., Any]:
    """Returns the rule of an operator along some dimensions, of which all elements count, that
    works on each row along them by itself.
    """

    def rule(call: Call, x: Operand, *args: Any, **kwargs: Any) -> Any:
        if "dim" in kwargs:
            raise Unserved("a dimension by its name")
        x = counted(x)
        row = {x.axis(i) for i in axes(x, args)}
        static(x, *row)
        for y in args:
            if isinstance(y, Counted) and [y.dims[i] for i in y.symbolic] != [
                x.dims[i] for i in x.symbolic
            ]:
                raise Unserved("rows of another number")
        return _of_rows(x, row, call.run(x, *args, **kwargs))

    return rule


def _of_rows(x: Counted, row: set[int], out: PyTree) -> Any:
    """Returns results with the dimensions of an argument but for those of a row."""
    if not isinstance(out, torch.Tensor):
        return tuple(_of_rows(x, row, y) for y in out)
    sizes = out.shape
    dims = tuple((to_jax(sizes[i]),) if i in row else dim for i, dim in enumerate(x.dims))
    return Counted(out, dims)


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
POOLS = ["roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"]  # torchvision's
# Those whose dimensions come first among the arguments.
ALONG = [
    aten._fft_c2c, aten._fft_r2c, aten._fft_c2r, aten.glu,
]  # fmt: skip


def _first(x: Counted, args: Sequence[Any]) -> Sequence[int]:
    """Returns the dimensions that are the first argument, the last one without any."""
    first = args[0] if args else -1
    return [first] if isinstance(first, int) else first


RULES: dict[Any, Rule] = {
    **dict.fromkeys([aten.mm, aten.bmm, aten.mv, aten.dot], product),
    **dict.fromkeys([aten.addmm, aten.baddbmm, aten.addmv], product_sum),
    **{op: rows(_last(count)) for count, ops in ROWS.items() for op in ops},
    **dict.fromkeys(ALONG, rows(_first)),
    aten.linear: linear,
    aten.convolution: convolution,
    aten.convolution_backward: convolution_backward,
    aten._scaled_dot_product_flash_attention_for_cpu: attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
    aten.embedding: embedding,
    aten.embedding_dense_backward: embedding_backward,
    **dict.fromkeys([f"torchvision::{name}" for name in POOLS], regions),
}
