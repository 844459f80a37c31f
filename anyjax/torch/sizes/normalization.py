"""Layers that normalize: over a batch, over rows, over groups of channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from anyjax.torch.sizes.call import Call, Operand, Rule, counted, static
from anyjax.torch.sizes.counted import Counted

aten = torch.ops.aten


def batch_statistics(
    call: Call,
    x: Counted,
    weight: Operand | None,
    bias: Operand | None,
    mean: Operand | None,
    var: Operand | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Normalizes over a batch, and moves the running statistics."""
    axes = [i for i in range(len(x.dims)) if i != 1]
    wide = torch.promote_types(x.tensor.dtype, torch.float32)
    shape = (1, -1, *[1] * (len(x.dims) - 2))
    scales, shifts, *old = (_channels(call, x, y) for y in (weight, bias, mean, var))
    if not training:
        static(x, 1)
        out = call.op(x.tensor, scales, shifts, *old, training, momentum, eps)
        return Counted(out[0], x.dims), *out[1:]
    count = call.sizes.counts_of(x.dims[i] for i in axes)
    average = call.total(x, axes, False, wide) / count
    centred = x.tensor.to(wide) - average.reshape(shape)
    spread = call.total(Counted(centred.square(), x.dims), axes, False, wide) / count
    scale = torch.rsqrt(spread + eps)
    out = centred * scale.reshape(shape)
    out = out if scales is None else out * scales.reshape(shape)
    out = (out if shifts is None else out + shifts.reshape(shape)).to(x.tensor.dtype)
    unbiased = spread * count / (count - 1)
    pairs = zip(old, (average, unbiased)) if mean is not None else ()
    moved = [x + momentum * (y.to(x.dtype) - x) for x, y in pairs]
    channels = (average, scale, *moved)
    return Counted(out, x.dims), *(Counted(y, (x.dims[1],)) for y in channels)


def _channels(call: Call, x: Counted, value: Operand) -> Any:
    """Returns a number of each channel in the factors of the channels."""
    return None if value is None else call.factored(counted(value), [x.dims[1]]).tensor


def batch_statistics_alone(
    call: Call,
    x: Counted,
    weight: Operand | None,
    bias: Operand | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Normalizes over a batch."""
    return batch_statistics(call, x, weight, bias, None, None, True, momentum, eps)


def batch_statistics_backward(
    call: Call,
    grad: Operand,
    x: Operand,
    weight: Operand | None,
    mean: Operand | None,
    var: Operand | None,
    saved_mean: Operand | None,
    saved_scale: Operand | None,
    train: bool,
    eps: float,
    mask: list[bool],
) -> Any:
    """Computes the gradients of what is normalized over a batch."""
    (grad, x), dims = call.broadcast(counted(grad), counted(x))
    axes = [i for i in range(len(dims)) if i != 1]
    wide = torch.promote_types(x.tensor.dtype, torch.float32)
    column = lambda v: v.to(wide).reshape(1, -1, *[1] * (len(dims) - 2))
    numbers = (weight, saved_mean, saved_scale) if train else (weight, mean, var)
    weight, mean, scale = (_channels(call, x, y) for y in numbers)
    scale = scale if train else torch.rsqrt(scale + eps)
    normal = (x.tensor.to(wide) - column(mean)) * column(scale)
    grads = grad.tensor.to(wide)
    bias_grad = call.total(grad, axes, False, wide)
    weight_grad = call.total(Counted(grads * normal, dims), axes, False, wide)
    out = grads
    if train:
        count = call.sizes.counts_of(dims[i] for i in axes)
        out = grads - (column(bias_grad) + normal * column(weight_grad)) / count
    out = out * column(scale) * (1 if weight is None else column(weight))
    channels = (Counted(y, (dims[1],)) for y in (weight_grad, bias_grad))
    results = Counted(out.to(x.tensor.dtype), dims), *channels
    return tuple(y if needed else None for y, needed in zip(results, mask))


def summed(row: Callable[[Counted, Sequence[Any]], Sequence[int]]) -> Callable[..., Any]:
    """Returns the rule of the gradients of a layer of rows, and of its weights: over all rows that
    count.
    """

    def rule(call: Call, *args: Any, **kwargs: Any) -> Any:
        tensors = [x for x in args if isinstance(x, Counted)]
        widest = max(tensors, key=lambda x: len(x.dims))
        lead = [*widest.dims]
        for i in widest.symbolic:
            lead[i] = call.common(x.dims[i] for x in tensors if i < len(x.dims))
        static(Counted(widest.tensor, tuple(lead)), *row(widest, args))
        operands = [
            call.sizes.fill(call.factored(x, lead[: len(x.dims)])) if isinstance(x, Counted) else x
            for x in args
        ]
        first, *rest = call.run(*operands, **kwargs)
        return (None if first is None else Counted(first, tuple(lead))), *rest

    return rule


def normalized(call: Call, x: Counted, shape: Sequence[int], *args: Any) -> Any:
    """Normalizes the last dimensions of each row."""
    row = range(len(x.dims) - len(shape), len(x.dims))
    static(x, *row)
    out, *statistics = call.run(x, shape, *args)
    thin = tuple((1,) if i in row else dim for i, dim in enumerate(x.dims))
    return Counted(out, x.dims), *(Counted(y, thin) for y in statistics)


def grouped(call: Call, x: Counted, *args: Any) -> Any:
    """Normalizes groups of channels."""
    static(x, *range(1, len(x.dims)))
    out, *statistics = call.run(x, *args)
    groups = [(x.dims[0], (y.shape[1],)) for y in statistics]
    return Counted(out, x.dims), *(Counted(y, dims) for y, dims in zip(statistics, groups))


def channels(call: Call, x: Counted, *args: Any) -> Any:
    """Normalizes channels by running statistics."""
    static(x, 1)
    out, *statistics = call.op(x.tensor, *args)
    return Counted(out, x.dims), *statistics


RULES: dict[Any, Rule] = {
    aten._native_batch_norm_legit.no_stats: batch_statistics_alone,
    aten._native_batch_norm_legit_functional: batch_statistics,
    aten.native_batch_norm_backward: batch_statistics_backward,
    aten.native_layer_norm_backward: summed(
        lambda x, args: range(len(x.dims) - len(args[2]), len(x.dims))
    ),
    aten.native_group_norm_backward: summed(lambda x, args: range(1, len(x.dims))),
    aten.native_layer_norm: normalized,
    aten.native_group_norm: grouped,
    aten._native_batch_norm_legit_no_training: channels,
}
