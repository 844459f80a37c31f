"""Operators along dimensions: sums, extremes, softmax, losses."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import torch

from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.data_dependent import int64
from anyjax.torch.sizes.call import Call, Operand, Rule, counted
from anyjax.torch.sizes.counted import Counted, Dim, Unserved
from anyjax.typing import PyTree

aten = torch.ops.aten

# What an element counts for that does not count.
ZERO = [aten.sum, aten.nansum, aten.any, aten.count_nonzero, aten.linalg_vector_norm]
LEAST = [aten.amax, aten.max.dim, aten.max.default, aten.argmax, aten.logsumexp]
GREATEST = [aten.amin, aten.min.dim, aten.min.default, aten.argmin]
PLACES = {aten.max.dim, aten.min.dim, aten.argmax.default, aten.argmin.default}


def extreme(x: torch.Tensor, sign: int) -> float:
    """Returns a number that none of a tensor is less than, or with sign 1 greater than."""
    if x.dtype is torch.bool:
        return sign > 0
    if x.dtype.is_floating_point:
        return sign * math.inf
    ends, limit = jnp.iinfo(to_jax(x.dtype)), int64.limit_of(x)
    return min(limit, int(ends.max)) if sign > 0 else max(-limit, int(ends.min))


def reduce(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Reduces what counts along some dimensions."""
    named = call.named(args, kwargs)
    x = named.pop("self")
    axes, dims = _axes(x, named)
    if call.op in PLACES:
        if named.get("dim") is None and len(x.dims) > 1:
            raise Unserved("the place among all elements")
        x = call.simple(x, *axes)
    if {call.op, call.op.overloadpacket} & {*LEAST, *GREATEST} - {aten.logsumexp}:
        call.check(lambda: call.sizes.counts_of(x.dims[i] for i in axes) > 0, x, axes)
    tensor = call.sizes.fill(x, _neutral(call, x, named), axes)
    out = call.op(tensor, **named)
    return _results(out, dims)


def _axes(x: Counted, named: dict[str, Any]) -> tuple[list[int], tuple[Dim, ...]]:
    """Returns the dimensions that are reduced, and those of the result."""
    dim = named.get("dim")
    axes = [dim] if isinstance(dim, int) else dim or range(len(x.dims))
    axes = sorted(x.axis(i) for i in axes)
    if named.get("keepdim"):
        return axes, tuple((1,) if i in axes else d for i, d in enumerate(x.dims))
    return axes, tuple(d for i, d in enumerate(x.dims) if i not in axes)


def _neutral(call: Call, x: Counted, named: dict[str, Any]) -> float:
    """Returns what is put in place of what does not count."""
    packet = call.op.overloadpacket
    if packet is aten.linalg_vector_norm and named.get("ord", 2) <= 0:
        raise Unserved("a norm of an order below 1")
    if packet in (aten.prod, aten.all):
        return 1
    if {packet, call.op} & {*LEAST}:
        return extreme(x.tensor, -1)
    return extreme(x.tensor, 1) if {packet, call.op} & {*GREATEST} else 0


def _results(out: PyTree, dims: tuple[Dim, ...]) -> Any:
    """Returns tensors with dimensions."""
    if isinstance(out, torch.Tensor):
        return Counted(out, dims)
    return tuple(Counted(x, dims) for x in out)


def mean(call: Call, *args: Any, **kwargs: Any) -> Counted:
    """Averages what counts."""
    named = call.named(args, kwargs)
    x, out = named["self"], call.metas.dtype
    axes, dims = _axes(x, named)
    wide = torch.promote_types(out, torch.float32)
    sums = call.total(x, axes, bool(named.get("keepdim")), wide)
    return Counted((sums / call.sizes.counts_of(x.dims[i] for i in axes)).to(out), dims)


def variance(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Computes the variance of what counts, its root, and the mean beside it."""
    named = call.named(args, kwargs)
    x, packet = named["self"], call.op.overloadpacket
    if x.tensor.is_complex():
        raise Unserved("complex numbers")
    correction, keepdim = named.get("correction"), bool(named.get("keepdim"))
    axes, dims = _axes(x, named)
    count = call.sizes.counts_of(x.dims[i] for i in axes)
    dtype, wide = x.tensor.dtype, torch.promote_types(x.tensor.dtype, torch.float32)
    average = call.total(x, axes, True, wide) / count
    square = Counted((x.tensor - average).square(), x.dims)
    out = call.total(square, axes, keepdim, wide) / (
        count - (1 if correction is None else correction)
    )
    out = (out.sqrt() if packet in (aten.std, aten.std_mean) else out).to(dtype)
    if packet in (aten.var, aten.std):
        return Counted(out, dims)
    return Counted(out, dims), Counted(average.reshape(out.shape).to(dtype), dims)


def softmax(call: Call, x: Counted, dim: int, *args: Any, **kwargs: Any) -> Counted:
    """Normalizes what counts."""
    tensor = call.sizes.fill(x, -math.inf, [x.axis(dim)])
    return Counted(call.op(tensor, dim, *args, **kwargs), x.dims)


def softmax_backward(
    call: Call, grad: Operand, output: Operand, dim: int, dtype: torch.dtype
) -> Counted:
    """Computes the gradient of softmax and of its logarithm."""
    (grad, output), dims = call.broadcast(counted(grad), counted(output))
    grads, outputs = (call.sizes.fill(x, 0, [x.axis(dim)]) for x in (grad, output))
    return Counted(call.op(grads, outputs, dim, dtype), dims)


def ordered(call: Call, x: Counted, dim: int, *args: Any, **kwargs: Any) -> Any:
    """Computes what depends on the elements up to each one: ``cumsum`` and others."""
    x = call.simple(x, x.axis(dim))
    return _results(call.op(x.tensor, dim, *args, **kwargs), x.dims)


def triangle(call: Call, x: Counted, diagonal: int = 0) -> Counted:
    """Takes the part below or above a diagonal."""
    x = call.simple(x, -1, -2)
    if not isinstance(diagonal, int):
        raise Unserved("a diagonal that depends on sizes")
    return Counted(call.op(x.tensor, diagonal), x.dims)


def loss(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Computes a loss of each element, and the mean or the sum of those that count."""
    named = call.named(args, kwargs)
    reduction, named["reduction"] = named["reduction"], 0
    names = [k for k, x in named.items() if isinstance(x, (Counted, torch.Tensor))]
    tensors, dims = call.broadcast(*(counted(named[name]) for name in names))
    each = Counted(call.op(**named | {k: x.tensor for k, x in zip(names, tensors)}), dims)
    if reduction == 0:
        return each
    axes = [*range(len(dims))]
    out = call.total(each, axes, False, each.tensor.dtype)
    return out / call.sizes.counts_of(dims) if reduction == 1 else out


def loss_backward(call: Call, *args: Any, **kwargs: Any) -> Counted:
    """Computes the gradient of a loss."""
    named = call.named(args, kwargs)
    reduction, named["reduction"] = named["reduction"], 2 * (named["reduction"] > 0)
    names = [k for k, x in named.items() if isinstance(x, (Counted, torch.Tensor))]
    tensors, dims = call.broadcast(*(counted(named[name]) for name in names))
    out = call.op(**named | {k: x.tensor for k, x in zip(names, tensors)})
    return Counted(out / call.sizes.counts_of(dims) if reduction == 1 else out, dims)


def classes(
    call: Call,
    scores: Operand,
    target: Operand,
    weight: Operand | None,
    reduction: int,
    ignore: int,
) -> Any:
    """Computes ``nll_loss``: what does not count is ignored."""
    scores, target = _classes(call, counted(scores), counted(target))
    labels = call.sizes.fill(target, ignore)
    out, weights = call.op(call.sizes.fill(scores), labels, weight, reduction, ignore)
    return (Counted(out, target.dims) if reduction == 0 else out), weights


def classes_backward(
    call: Call,
    grad: Operand,
    scores: Operand,
    target: Operand,
    weight: Operand | None,
    reduction: int,
    ignore: int,
    total_weight: Operand,
) -> Counted:
    """Computes the gradient of ``nll_loss``."""
    scores, target = _classes(call, counted(scores), counted(target))
    if isinstance(grad, Counted):
        grad = call.factored(grad, target.dims).tensor
    labels = call.sizes.fill(target, ignore)
    numbers = call.sizes.fill(scores)
    out = call.op(grad, numbers, labels, weight, reduction, ignore, total_weight)
    return Counted(out, scores.dims)


def _classes(call: Call, scores: Counted, target: Counted) -> tuple[Counted, Counted]:
    """Returns scores of classes and targets with the same factors."""
    axis = 1 if len(scores.dims) > 1 else 0
    scores = call.simple(scores, axis)
    rest = Counted(scores.tensor, (*scores.dims[:axis], (1,), *scores.dims[axis + 1 :]))
    spread = Counted(target.tensor, (*target.dims[:axis], (1,), *target.dims[axis:]))
    dims = [call.common(pair) for pair in zip(rest.dims, spread.dims)]
    scores = call.factored(scores, [*dims[:axis], scores.dims[axis], *dims[axis + 1 :]])
    return scores, call.factored(target, [*dims[:axis], *dims[axis + 1 :]])


LOSSES = [
    aten.mse_loss, aten.huber_loss, aten.smooth_l1_loss, aten.soft_margin_loss,
    aten.binary_cross_entropy, aten.binary_cross_entropy_with_logits,
]  # fmt: skip
LOSSES_BACKWARD = [
    aten.mse_loss_backward, aten.huber_loss_backward, aten.smooth_l1_loss_backward,
    aten.soft_margin_loss_backward, aten.binary_cross_entropy_backward,
]  # fmt: skip

RULES: dict[Any, Rule] = {
    **dict.fromkeys([*ZERO, *LEAST, *GREATEST, aten.prod, aten.all], reduce),
    **{op.correction: variance for op in (aten.var, aten.std, aten.var_mean, aten.std_mean)},
    **dict.fromkeys([aten._softmax, aten._log_softmax, aten._safe_softmax], softmax),
    **dict.fromkeys(
        [aten._softmax_backward_data, aten._log_softmax_backward_data], softmax_backward
    ),
    **dict.fromkeys(
        [aten.cumsum, aten.cumprod, aten.cummax, aten.cummin, aten.logcumsumexp], ordered
    ),
    **dict.fromkeys([aten.tril, aten.triu], triangle),
    **dict.fromkeys(LOSSES, loss),
    **dict.fromkeys(LOSSES_BACKWARD, loss_backward),
    **dict.fromkeys([aten.nll_loss_forward, aten.nll_loss2d_forward], classes),
    **dict.fromkeys([aten.nll_loss_backward, aten.nll_loss2d_backward], classes_backward),
    aten.mean: mean,
}
