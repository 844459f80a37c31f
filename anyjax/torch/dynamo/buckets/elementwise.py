"""Operators of each element by itself, and those that make tensors."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from anyjax.torch.dynamo.buckets.bucketed import Bucketed
from anyjax.torch.dynamo.buckets.call import Call, Rule, bucketed

aten = torch.ops.aten

# Those that torch does not tag as pointwise.
POINTWISE = [
    aten._to_copy, aten.alias, aten.bernoulli, aten.copy, aten.detach, aten.empty_like,
    aten.fill, aten.full_like, aten.lift_fresh_copy, aten.native_dropout,
    aten.ones_like, aten.rand_like, aten.randn_like, aten.zeros_like,
    aten.softplus_backward, aten.elu_backward, aten.leaky_relu_backward, aten.hardtanh_backward,
    aten.hardsigmoid_backward, aten.hardswish, aten.hardswish_backward, aten.log_sigmoid_forward,
    aten.mish_backward, aten.softshrink_backward, aten.hardshrink_backward, aten.logaddexp,
]  # fmt: skip


def pointwise(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Computes each element; sizes among the numbers are those that count."""
    leaves, tree = tree_flatten((args, kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, (Bucketed, torch.Tensor))]
    tensors, dims = call.broadcast(*(bucketed(leaves[i]) for i in places))
    for place, tensor in zip(places, tensors):
        leaves[place] = tensor.tensor
    op = call.op
    if any(isinstance(x, sympy.Expr) for x in leaves):
        leaves, op = [call.number(x) for x in leaves], op.overloadpacket
    operands, options = tree_unflatten(leaves, tree)
    out = op(*operands, **options)
    if isinstance(out, torch.Tensor):
        return Bucketed(out, dims)
    return tuple(Bucketed(x, dims) if x.dim() else x for x in out)


def sized(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Makes a tensor of a size that is the first argument, after a tensor for ``new_zeros``."""
    args = tuple(call.number(x) if isinstance(x, sympy.Expr) else call.padded(x) for x in args)
    place = next((i for i, x in enumerate(args) if isinstance(x, (list, tuple))), 0)
    value = args[place + 1] if len(args) > place + 1 else None
    if not isinstance(value, torch.Tensor):
        return Bucketed(call.op(*args, **kwargs), call.dims)
    dtype = kwargs.get("dtype") or call.metas.dtype
    return Bucketed(value.to(dtype).expand(args[place]), call.dims)


def arange(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Counts from a start, in steps."""
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    count = torch.arange(call.sizes.shape(call.dims)[0])
    out = call.number(start) + count * call.number(step)
    return Bucketed(out.to(call.metas.dtype), call.dims)


RULES: dict[Any, Rule] = {
    **dict.fromkeys(POINTWISE, pointwise),
    **dict.fromkeys([aten.empty, aten.full, aten.ones, aten.rand, aten.randn, aten.zeros], sized),
    **dict.fromkeys([aten.new_empty, aten.new_full, aten.new_ones, aten.new_zeros], sized),
    aten.arange: arange,
    aten.eye: lambda call, *args, **kwargs: Bucketed(call.run(*args, **kwargs), call.dims),
    aten.scalar_tensor: lambda call, x, **kwargs: call.number(x).to(call.metas.dtype),
}
