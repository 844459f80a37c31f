"""Functions of ``x[mask]``: what each of them does with the rows that count."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from tojax.torch.data_dependent.padded.padded import (
    ELEMENTWISE,
    IN_PLACE,
    Grouped,
    Padded,
    Shape,
    array,
    concerns,
    count,
    leading,
)
from tojax.torch.data_dependent.padded.split import held_in
from tojax.torch.data_dependent.traced_index import GET, SET

# Names of functions, each with the ways that it is called in.
WITH_DIM = """sum mean any all prod amax amin max min argmax argmin logsumexp softmax log_softmax
cumsum unsqueeze squeeze"""
ALIASES = {"to", "float", "double", "half", "bfloat16", "int", "long", "bool", "type", "type_as"}
ALIASES |= {"detach", "contiguous", "cpu", "dropout"}  # what they give may be the same memory
ALONG = {*WITH_DIM.split()}
LAYERS = {"linear", "layer_norm", "rms_norm", "embedding", "matmul", "mm", "__matmul__"}
BY_CLASS = {"cross_entropy", "nll_loss"}
LOSSES = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "soft_margin_loss"}
LOSSES |= {"binary_cross_entropy", "binary_cross_entropy_with_logits", *BY_CLASS}
OTHERS = "a tensor of other rows beside those"
ASKS = {"dim", "is_floating_point", "is_complex"}


def serve(func, args, kwargs, one: Padded) -> Any:
    """A call that concerns ``one``."""
    if type(one) is Grouped:
        one.refuse(func)
    name = func.__name__
    asks = name in ASKS or (name == "size" and args[1:] and args[1] % one.ndim)
    if asks and args[0] is one:
        return func(one.rows, *args[1:])
    if name in IN_PLACE or (name.endswith("_") and name[:-1] in ELEMENTWISE):
        return in_place(func, args, kwargs, one)
    serving = one.serves.get(name) or {SET: assign, GET: part}.get(func)
    for names, function in SERVED:
        serving = serving or (function if name in names else None)
    seen = count(one.rows)
    out = (serving or one.refuse)(func, args, kwargs, one)
    return out if count(one.rows) == seen else one.refuse(func)  # inplace=True


def sized(func, args, kwargs, one: Padded) -> Any:
    """``size`` and ``numel``, of which a traced number is one factor."""
    if args[0] is not one or kwargs:
        one.refuse(func)
    shape = Shape(one)
    if func.__name__ == "size":
        return shape[args[1]] if args[1:] else shape
    return math.prod(one.rows.shape[1:]) * one.total()


def in_place(func, args, kwargs, one: Padded) -> Padded:
    """An elementwise function in place."""
    if args[0] is not one or one.shared:
        one.refuse(func)
    name = func.__name__
    base = getattr(torch.Tensor, "__" + name[3:] if name in IN_PLACE else name[:-1])
    out = elementwise(base, args, kwargs, one)
    if not torch.can_cast(out.dtype, one.dtype):
        raise RuntimeError(f"result type {out.dtype} can't be cast to {one.dtype}")
    one.rows = out.rows.to(one.dtype)
    return one


def rows_of(value: Any, one: Padded) -> Any:
    """A value beside the rows of ``one``: rows that are chosen alike, or the same for each row."""
    if isinstance(value, Padded):
        return (
            value.rows if value.mask is one.mask and value.ndim == one.ndim else one.refuse(OTHERS)
        )
    if not isinstance(value, torch.Tensor):
        return value
    if value.dim() > one.ndim or (value.dim() == one.ndim and value.shape[0] != 1):
        one.refuse(OTHERS)
    is_scalar = value.dim() == 0 and value.dtype is not torch.bool
    dtype = torch.result_type(one.rows, value) if is_scalar else value.dtype
    shape = torch.broadcast_shapes(one.rows.shape, value.shape)
    value = value.to(dtype).expand(shape)
    return torch.where(one.beside(value), value, value.detach())  # rows that do not count give none


def elementwise(func, args, kwargs, one: Padded) -> Padded:
    """A function of each number, with rows chosen alike and what is the same for each row."""
    if "out" in kwargs:
        one.refuse(func)
    rows = lambda tree: [rows_of(x, one) for x in tree]
    return one.like(func(*rows(args), **dict(zip(kwargs, rows(kwargs.values())))))


def alias(func, args, kwargs, one: Padded) -> Padded:
    """A function whose result may be its argument."""
    if any(isinstance(x, Padded) for x in held_in((*args[1:], *kwargs.values()))):
        one.refuse(func)
    return shared(one, func(one.rows, *args[1:], **kwargs))


def shared(one: Padded, rows: torch.Tensor) -> Padded:
    """A view of ``one``: neither may be written to any more."""
    out = one.like(rows)
    out.shared = one.shared = True
    return out


def along(func, args, kwargs, one: Padded) -> Any:
    """A function along dimensions; that of the rows is served for sums, means, any and all."""
    name, dim = func.__name__, args[1] if len(args) > 1 else kwargs.get("dim")
    if isinstance(dim, (torch.Tensor, Padded)) and name in ("max", "min"):
        return elementwise(func, args, kwargs, one)
    if args[0] is not one or isinstance(dim, (torch.Tensor, Padded)) or "axis" in kwargs:
        one.refuse(func)
    rank = one.ndim + (name == "unsqueeze")
    dims = [dim] if isinstance(dim, int) else range(rank) if dim in (None, ()) else dim
    if all(d % rank for d in dims):
        out = func(one.rows, *args[1:], **kwargs)
        return shared(one, out) if "squeeze" in name else tree_map(one.like, out)
    if name in ("sum", "any"):
        return func(one.rows, *args[1:], **kwargs)
    if name == "all":
        return func(one.rows.bool() | ~one.beside(one.rows), *args[1:], **kwargs)
    if name != "mean" or not one.rows.is_floating_point() or "dtype" in kwargs:
        one.refuse(func)
    wide = one.rows.to(torch.promote_types(one.dtype, torch.float32))
    each = math.prod(one.rows.shape[d] for d in dims if d % rank)
    return (wide.sum(*args[1:], **kwargs) / (one.chosen.sum() * each)).to(one.dtype)


def layer(func, args, kwargs, one: Padded) -> Any:
    """A function of the last dimensions of its first argument, with weights."""
    name, operands = func.__name__, [*args[1:], *kwargs.values()]
    if not args or args[0] is not one or concerns(tuple(operands), {}) or "out" in kwargs:
        one.refuse(func)
    if name in ("layer_norm", "rms_norm"):
        fits = len(args) > 1 and one.ndim > len(args[1])
    elif name == "embedding":  # max_norm writes to the rows of the table
        fits = kwargs.get("max_norm", args[3] if len(args) > 3 else None) is None
    else:
        fits = one.ndim > 1 and isinstance(operands[0], torch.Tensor) and operands[0].dim() == 2
    return one.like(func(one.rows, *args[1:], **kwargs)) if fits else one.refuse(func)


def loss(func, args, kwargs, one: Padded) -> Any:
    """The mean or sum over the rows that count."""
    arguments = inspect.signature(func).bind(*args, **kwargs).arguments
    arguments = {k: v for k, v in arguments.items() if v is not None}
    input, target = arguments.pop("input"), arguments.pop("target")
    reduction, name = arguments.pop("reduction", "mean"), func.__name__
    if (
        not isinstance(input, Padded)
        or not isinstance(target, Padded)
        or input.mask is not target.mask
    ):
        one.refuse(func)
    if name in BY_CLASS and not target.rows.is_floating_point():
        ignored = arguments.get("ignore_index", -100)
        classes = target.rows.masked_fill(~target.beside(target.rows), ignored)
        out = func(input.rows, classes, reduction=reduction, **arguments)
        return input.like(out) if reduction == "none" else out
    entropy = name.startswith("binary_cross_entropy")
    weighted = not entropy and any(isinstance(x, torch.Tensor) for x in arguments.values())
    unlike = input.rows.shape != target.rows.shape
    if weighted or unlike or name in BY_CLASS or {"size_average", "reduce"} & {*arguments}:
        one.refuse(func)
    arguments = {k: rows_of(v, input) for k, v in arguments.items()}
    out = input.like(func(input.rows, target.rows, reduction="none", **arguments))
    if reduction == "mean":
        return along(torch.mean, (out,), {}, out)
    if reduction in ("sum", "batchmean"):
        total = out.rows.sum()
        return total if reduction == "sum" else total / out.chosen.sum()
    return out if reduction == "none" else one.refuse(func)


def ctc(func, args, kwargs, one: Padded) -> torch.Tensor:
    """``ctc_loss`` of texts one behind the other, ``labels[labels >= 0]``, as of rows of their own;
    NaN for lengths that are not those of the texts, which torch refuses.
    """
    arguments = inspect.signature(func).bind(*args, **kwargs).arguments
    lengths, shape = arguments["target_lengths"], one.mask.shape
    texts = arguments["targets"] is one and one.ndim == 1 and len(shape) == 2
    if not texts or not isinstance(lengths, torch.Tensor):
        one.refuse(func)
    flat = one.rows[(~one.chosen).int().argsort(stable=True)]
    place = (lengths.cumsum(0) - lengths)[:, None] + torch.arange(shape[1])
    arguments["targets"] = flat[place.clamp(max=len(flat) - 1)]
    fits = (lengths <= shape[1]).all() & (lengths.sum() == one.chosen.sum())
    return func(**arguments).masked_fill(~fits, float("nan"))


def part(func, args, kwargs, one: Padded) -> Any:
    """``t[:, ...]``, other dimensions than that of the rows."""
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    all_rows = isinstance(index[0], slice) and index[0] == slice(None)
    is_static = all(isinstance(x, (int, slice)) or x is None or x is Ellipsis for x in index)
    if args[0] is not one or not all_rows or not is_static:
        one.refuse(func)
    return shared(one, one.rows[index])


def assign(func, args, kwargs, one: Padded) -> None:
    """``y[mask] = ...`` with rows that this mask chose."""
    target, index, value = args
    mask = leading(index)
    if value is not one or mask is None or array(mask) is not one.mask:
        one.refuse(func)
    depth = mask.dim()
    if target.shape[:depth] != mask.shape or target.dim() - depth + 1 != one.ndim:
        one.refuse(func)
    if target.dtype != one.dtype:
        raise RuntimeError(f"values of {one.dtype} for a tensor of {target.dtype}")
    rows = one.rows.reshape(*mask.shape, *one.rows.shape[1:])
    where = mask.reshape(*mask.shape, *[1] * (target.dim() - depth))
    target.copy_(torch.where(where, rows, target))


def joined(func, args, kwargs, one: Padded) -> Any:
    """``cat`` and ``stack`` along another dimension than that of the rows."""
    dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    rank = one.ndim + (func.__name__ == "stack")
    if not all(isinstance(x, Padded) for x in args[0]) or dim % rank == 0:
        one.refuse(func)
    return one.like(func([rows_of(x, one) for x in args[0]], dim))


def reshaped(func, args, kwargs, one: Padded) -> Any:
    """``view(-1, ...)`` where the rows stay what they are, and ``view(batch, -1, ...)``."""
    shape = args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:]
    batch, width = one.mask.shape, one.rows.shape[1:]
    if len(batch) == 2 and not kwargs and tuple(shape) == (batch[0], -1, *width):
        rows, chosen = one.rows.reshape(*batch, *width), one.chosen.reshape(batch)
        return Grouped(rows, chosen, one.mask, one.error)
    sizes = all(isinstance(x, int) for x in shape) and tuple(shape[:1]) == (-1,)
    if not sizes or math.prod(shape[1:]) != math.prod(one.rows.shape[1:]) or kwargs:
        one.refuse(func)
    return shared(one, one.rows.reshape(-1, *shape[1:]))


SERVED: list[tuple[Any, Callable]] = [
    (ELEMENTWISE, elementwise),
    (ALIASES, alias),
    (ALONG, along),
    (LAYERS, layer),
    (LOSSES, loss),
    ({"ctc_loss"}, ctc),
    ({"cat", "concat", "stack"}, joined),
    ({"view", "reshape"}, reshaped),
    ({"size", "numel"}, sized),
]
