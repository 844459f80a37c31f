"""Operators of each element by itself, and those that make tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from anyjax.torch.sizes.call import Call, Rule, counted, is_size
from anyjax.torch.sizes.counted import Counted, Unserved

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
    places = [i for i, x in enumerate(leaves) if isinstance(x, (Counted, torch.Tensor))]
    tensors, dims = call.broadcast(*(counted(leaves[i]) for i in places))
    for place, tensor in zip(places, tensors):
        leaves[place] = tensor.tensor
    operands, options = tree_unflatten(leaves, tree)
    if any(is_size(x) or isinstance(x, torch.SymFloat) for x in leaves):
        out = _of_numbers(call, operands, options)
    else:
        out = call.op(*operands, **options)
    if isinstance(out, torch.Tensor):
        return Counted(out, dims)
    return tuple(Counted(x, dims) if x.dim() else x for x in out)


def _of_numbers(call: Call, operands: tuple, options: dict[str, Any]) -> Any:
    """Computes from sizes by the overload that takes tensors in their places."""
    are_open = [is_size(x) or isinstance(x, torch.SymFloat) for x in operands]
    packet = call.op.overloadpacket
    for op in (getattr(packet, name) for name in packet.overloads()):
        takes = ["Tensor" in str(x.type) for x in op._schema.arguments]
        if all(take for is_open, take in zip(are_open, takes) if is_open):
            numbers = [
                torch.as_tensor(call.number(x)) if take and x is not None else x
                for x, take in zip(operands, takes)
            ]
            return op(*numbers, **{k: call.number(x) for k, x in options.items()})
    raise Unserved("with a size among its numbers")


def sized(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Makes a tensor of a size that is the first argument, after a tensor for ``new_zeros``."""
    args = tuple(call.number(x) if is_size(x) else call.padded(x) for x in args)
    place = next((i for i, x in enumerate(args) if isinstance(x, (list, tuple))), 0)
    value = args[place + 1] if len(args) > place + 1 else None
    if not isinstance(value, torch.Tensor):
        return Counted(call.op(*args, **kwargs), call.dims)
    dtype = kwargs.get("dtype") or call.metas.dtype
    return Counted(value.to(dtype).expand(args[place]), call.dims)


def arange(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Counts from a start, in steps."""
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    count = torch.arange(call.sizes.shape(call.dims)[0])
    out = call.number(start) + count * call.number(step)
    return Counted(out.to(call.metas.dtype), call.dims)


RULES: dict[Any, Rule] = {
    **dict.fromkeys(POINTWISE, pointwise),
    **dict.fromkeys([aten.empty, aten.full, aten.ones, aten.rand, aten.randn, aten.zeros], sized),
    **dict.fromkeys([aten.new_empty, aten.new_full, aten.new_ones, aten.new_zeros], sized),
    aten.arange: arange,
    aten.eye: lambda call, *args, **kwargs: Counted(call.run(*args, **kwargs), call.dims),
    aten.scalar_tensor: lambda call, x, **kwargs: call.number(x).to(call.metas.dtype),
}
