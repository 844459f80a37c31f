"""Functions of ``x[mask]``: what each of them does with the rows that count.

A rule takes the rows, the function, and the function's arguments; it gives NotImplemented for those
that it does not serve, and what its signature does not take is not served either.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.utils._pytree import tree_map

from anyjax.torch.core import private
from anyjax.torch.core.lifting import value_in
from anyjax.torch.data_dependent.padded.extremes import UNITS, without_others
from anyjax.torch.data_dependent.padded.padded import (
    ALL,
    IN_PLACE,
    OPERATORS,
    Padded,
    concerns,
    is_static,
    leading_mask,
)

BY_CLASS = {"cross_entropy", "nll_loss"}
OTHERS = "a tensor of other rows beside those"

Function = Callable[..., Any]
signature = lru_cache(inspect.signature)


def serve(func: Function, args: tuple, kwargs: Mapping[str, object], padded: Padded) -> Any:
    """Calls the rule of a function that takes ``padded``."""
    name = func.__name__
    rule = RULES.get(name)
    if rule is None or (padded.chosen.dim() > 1 and name != "__getitem__"):
        padded.refuse(func)
    try:
        signature(rule).bind(padded, func, *args, **kwargs)
    except TypeError:
        padded.refuse(func)
    writes = private.writes_so_far(padded.rows)
    out = rule(padded, func, *args, **kwargs)
    inplace = private.writes_so_far(padded.rows) != writes  # relu(x, inplace=True)
    return padded.refuse(func) if inplace or out is NotImplemented else out


def ask(padded: Padded, func: Function, self: torch.Tensor) -> Any:
    """Returns a fact that is the same for all rows."""
    return func(padded.rows)


def size(padded: Padded, func: Function, self: torch.Tensor, dim: int | None = None) -> Any:
    """Returns ``size``, of which one number is traced."""
    if dim is None:
        return padded.shape
    return padded.rows.size(dim) if dim % padded.ndim else padded.total()


def numel(padded: Padded, func: Function, self: torch.Tensor) -> Any:
    """Returns ``numel``, a traced number."""
    return math.prod(padded.rows.shape[1:]) * padded.total()


def elementwise(padded: Padded, func: Function, *args: Any, **kwargs: Any) -> Any:
    """Calls a function of each number, with rows chosen alike or the same value for each row."""
    if "out" in kwargs:
        return NotImplemented
    kwargs = {k: rows_of(v, padded) for k, v in kwargs.items()}
    return padded.like(func(*(rows_of(x, padded) for x in args), **kwargs))


def rows_of(value: object, padded: Padded) -> Any:
    """Returns an operand for all rows: rows that are chosen alike, or the same for each row."""
    if isinstance(value, Padded):
        return alike(value, padded) if value.ndim == padded.ndim else padded.refuse(OTHERS)
    if not isinstance(value, torch.Tensor):
        return value
    if value.dim() > padded.ndim or (value.dim() == padded.ndim and value.shape[0] != 1):
        padded.refuse(OTHERS)
    is_scalar = value.dim() == 0 and value.dtype is not torch.bool
    dtype = torch.result_type(padded.rows, value) if is_scalar else value.dtype
    tensor = value.to(dtype).expand(torch.broadcast_shapes(padded.rows.shape, value.shape))
    counts = padded.beside(tensor)
    return torch.where(counts, tensor, tensor.detach())  # rows that do not count give none


def alike(value: Padded, padded: Padded) -> torch.Tensor:
    """Returns all rows of a tensor that was chosen alike."""
    return value.rows if value.mask is padded.mask else padded.refuse(OTHERS)


def in_place(padded: Padded, func: Function, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Calls an elementwise function in place."""
    name = func.__name__
    base = getattr(torch.Tensor, "__" + name[3:] if name in IN_PLACE else name[:-1])
    if self is not padded or padded.shared:
        return NotImplemented
    out = elementwise(padded, base, self, *args, **kwargs)
    if not torch.can_cast(out.dtype, padded.dtype):
        raise RuntimeError(f"result type {out.dtype} can't be cast to {padded.dtype}")
    padded.rows = out.rows.to(padded.dtype)
    return padded


def alias(padded: Padded, func: Function, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Calls a function whose result may be its argument."""
    if concerns(args, kwargs) is not None:
        return NotImplemented
    return shared(padded, func(padded.rows, *args, **kwargs))


def shared(padded: Padded, rows: torch.Tensor) -> Padded:
    """Returns a view: neither may be written to any more."""
    out = padded.like(rows)
    out.shared = padded.shared = True
    return out


def along(padded: Padded, func: Function, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Calls a function along dimensions; along that of the rows, sums, means, any and all."""
    name, dim = func.__name__, args[0] if args else kwargs.get("dim")
    if isinstance(dim, torch.Tensor) and name in ("max", "min"):
        return elementwise(padded, func, self, *args, **kwargs)
    if self is not padded or isinstance(dim, torch.Tensor) or "axis" in kwargs:
        return NotImplemented
    rank = padded.ndim + (name == "unsqueeze")
    dims = [dim] if isinstance(dim, int) else range(rank) if dim in (None, ()) else dim
    if all(d % rank for d in dims):
        out = func(padded.rows, *args, **kwargs)
        return shared(padded, out) if "squeeze" in name else tree_map(padded.like, out)
    if name in ("sum", "any"):
        return func(padded.rows, *args, **kwargs)
    if name == "all":
        return func(padded.rows.bool() | ~padded.beside(padded.rows), *args, **kwargs)
    if name in UNITS and (name not in ("max", "min") or dim is None):
        return func(without_others(padded, name), *args, **kwargs)
    if name != "mean" or not padded.rows.is_floating_point() or "dtype" in kwargs:
        return NotImplemented
    wide = padded.rows.to(torch.promote_types(padded.dtype, torch.float32))
    count = padded.chosen.sum() * math.prod(padded.rows.shape[d] for d in dims if d % rank)
    return (wide.sum(*args, **kwargs) / count).to(padded.dtype)


def layer(padded: Padded, func: Function, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Calls a function of the last dimensions of its first argument, with weights."""
    name, operands = func.__name__, [*args, *kwargs.values()]
    if name in ("layer_norm", "rms_norm"):
        fits = bool(args) and padded.ndim > len(args[0])
    elif name == "embedding":  # max_norm writes to the rows of the table
        fits = kwargs.get("max_norm", args[2] if len(args) > 2 else None) is None
    else:
        fits = padded.ndim > 1 and isinstance(operands[0], torch.Tensor) and operands[0].dim() == 2
    if not fits or self is not padded or concerns(args, kwargs) is not None or "out" in kwargs:
        return NotImplemented
    return padded.like(func(padded.rows, *args, **kwargs))


def loss(padded: Padded, func: Function, *args: Any, **kwargs: Any) -> Any:
    """Returns the mean or sum of a loss over the rows that count."""
    options = signature(func).bind(*args, **kwargs).arguments
    options = {k: v for k, v in options.items() if v is not None}
    input, target, name = options.pop("input"), options.pop("target"), func.__name__
    reduction = options.pop("reduction", "mean")
    if not isinstance(input, Padded) or not isinstance(target, Padded):
        return NotImplemented
    if input.mask is not target.mask:
        return NotImplemented
    if name in BY_CLASS and not target.rows.is_floating_point():
        ignored = options.get("ignore_index", -100)
        classes = target.rows.masked_fill(~target.beside(target.rows), ignored)
        out = func(input.rows, classes, reduction=reduction, **options)
        return input.like(out) if reduction == "none" else out
    entropy = name.startswith("binary_cross_entropy")
    weighted = not entropy and any(isinstance(x, torch.Tensor) for x in options.values())
    unlike = input.rows.shape != target.rows.shape
    if weighted or unlike or name in BY_CLASS or {"size_average", "reduce"} & {*options}:
        return NotImplemented
    options = {k: rows_of(v, input) for k, v in options.items()}
    out = input.like(func(input.rows, target.rows, reduction="none", **options))
    reduced = {
        "none": lambda: out,
        "mean": lambda: along(out, torch.mean, out),
        "sum": lambda: out.rows.sum(),
        "batchmean": lambda: out.rows.sum() / out.chosen.sum(),
    }
    return reduced.get(reduction, lambda: NotImplemented)()


def ctc(padded: Padded, func: Function, *args: Any, **kwargs: Any) -> Any:
    """Computes ``ctc_loss`` of texts one behind the other, ``labels[labels >= 0]``;
    NaN for lengths that are not those of the texts, which torch refuses.
    """
    arguments = signature(func).bind(*args, **kwargs).arguments
    lengths, shape = arguments["target_lengths"], padded.mask.shape
    texts = arguments["targets"] is padded and padded.ndim == 1 and len(shape) == 2
    if not texts or not isinstance(lengths, torch.Tensor):
        return NotImplemented
    flat = padded.rows[(~padded.chosen).int().argsort(stable=True)]
    place = (lengths.cumsum(0) - lengths)[:, None] + torch.arange(shape[1])
    arguments["targets"] = flat[place.clamp(max=len(flat) - 1)]
    fits = (lengths <= shape[1]).all() & (lengths.sum() == padded.chosen.sum())
    return func(**arguments).masked_fill(~fits, float("nan"))


def join(padded: Padded, func: Function, tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    """Serves ``cat`` and ``stack`` along another dimension than that of the rows."""
    rank = padded.ndim + (func.__name__ == "stack")
    if not all(isinstance(x, Padded) for x in tensors) or dim % rank == 0:
        return NotImplemented
    return padded.like(func([rows_of(x, padded) for x in tensors], dim))


def reshape(padded: Padded, func: Function, self: torch.Tensor, *shape: Any) -> Any:
    """Serves ``view(-1, ...)`` where the rows stay the same, and ``view(batch, -1, ...)``."""
    first, *sizes = shape = tuple(shape[0]) if isinstance(shape[0], (tuple, list)) else shape
    batch, width = padded.mask.shape, padded.rows.shape[1:]
    if len(batch) == 2 and shape == (batch[0], -1, *width):
        rows, chosen = padded.rows.reshape(*batch, *width), padded.chosen.reshape(batch)
        return Padded(rows, chosen, padded.mask, padded.error)
    if (
        not all(isinstance(x, int) for x in shape)
        or first != -1
        or math.prod(sizes) != width.numel()
    ):
        return NotImplemented
    return shared(padded, padded.rows.reshape(-1, *sizes))


def expand(padded: Padded, func: Function, self: torch.Tensor, *shape: Any) -> Any:
    """Serves ``places.expand(len(places), ...)``."""
    first, *sizes = shape[0] if isinstance(shape[0], (tuple, list)) else shape
    is_total = any(first is x for x in padded.totals) or (type(first) is int and first == -1)
    if not is_total or len(sizes) != padded.ndim - 1:
        return NotImplemented
    return shared(padded, padded.rows.expand(-1, *sizes))


def where(padded: Padded, func: Function, *args: Any, **kwargs: Any) -> Any:
    """Serves ``where`` of three, and of a condition on each row, which gives places among rows."""
    if len(args) + len(kwargs) > 1:
        return elementwise(padded, func, *args, **kwargs)
    if padded.ndim != 1:
        return NotImplemented
    chosen, ranks = padded.rows.bool().clone(), padded.chosen.cumsum(0) - 1
    return (Padded(ranks, chosen, value_in(chosen), padded.error, padded.mask),)


def get(padded: Padded, func: Function, self: torch.Tensor, index: object) -> Any:
    """Serves ``t[:, ...]``, ``t[:n]`` and ``t[where(...)]``, and ``x[t, ...]`` of places ``t``."""
    items = index if isinstance(index, tuple) else (index,)
    if padded.chosen.dim() > 1:
        return row_of_each(padded, *items) if len(items) > 1 else NotImplemented
    if self is not padded:
        places = places_in(index, padded)
        return places if places is NotImplemented else padded.like(func(self, places))
    match items:
        case (Padded(among=among) as ranks,) if among is padded.mask:
            return Padded(padded.rows, ranks.chosen, ranks.mask, padded.error)
        case (slice(start=None | 0, stop=int(stop), step=None | 1),) if stop >= 0:
            chosen = padded.chosen & (padded.chosen.cumsum(0) <= stop)
            return Padded(padded.rows, chosen, value_in(chosen), padded.error)
        case (slice(start=None, stop=None, step=None), *rest) if all(map(is_static, rest)):
            return shared(padded, padded.rows[index])
    return NotImplemented


def row_of_each(padded: Padded, batch: object, place: object, *rest: Any) -> Any:
    """Returns ``t[:, place]`` of rows [batch, length, ...]: of each element the row at this place.

    Elements with different numbers of them, or too few, give NaN: a compiled program cannot raise.
    """
    all_rows = all(isinstance(x, slice) and x == ALL for x in (batch, *rest))
    if not all_rows or type(place) is not int or not padded.rows.is_floating_point():
        return NotImplemented
    counts, ranks = padded.chosen.sum(1), padded.chosen.cumsum(1) - 1
    rank = counts[:, None] + place if place < 0 else place
    at = (padded.chosen & (ranks == rank)).int().argmax(1)
    fits = (counts == counts[0]) & (counts > (~place if place < 0 else place))
    return padded.rows[torch.arange(len(at)), at].masked_fill(~fits.all(), float("nan"))


def places_in(index: object, padded: Padded) -> Any:
    """Returns an index with all rows, if it begins with integers that were chosen alike."""
    items = index if isinstance(index, tuple) else (index,)
    places = [x for x in items if isinstance(x, Padded)]
    rest = items[len(places) :]
    fits = all(x is y and x.mask is padded.mask and x.ndim == 1 for x, y in zip(items, places))
    fits &= bool(places) and all(x.dtype is torch.int64 for x in places)
    fits &= all(is_static(x) and x is not Ellipsis for x in rest)
    return (*(x.rows for x in places), *rest) if fits else NotImplemented


def put(padded: Padded, func: Function, self: torch.Tensor, index: object, value: object) -> Any:
    """Writes ``y[mask] = t`` and ``y[places] = t``: rows that were chosen alike, or one value."""
    if isinstance(value, torch.Tensor) and value.dtype != self.dtype:
        raise RuntimeError(f"values of {value.dtype} for a tensor of {self.dtype}")
    by_mask, places = leading_mask(index), places_in(index, padded)
    if by_mask is not None and value is padded:
        return put_mask(self, *by_mask, value)
    if self is padded or places is NotImplemented:
        return NotImplemented
    if isinstance(value, Padded):
        value = alike(value, padded)
    elif isinstance(value, torch.Tensor) and value.dim():
        return NotImplemented
    place = torch.where(places[0] < 0, places[0] + len(self), places[0])
    longer = torch.cat([self, self[:1]])  # what does not count writes to a row that is dropped
    longer[(torch.where(padded.chosen, place, len(self)), *places[1:])] = value
    self.copy_(longer[:-1])
    return None


def put_mask(self: torch.Tensor, mask: torch.Tensor, rest: tuple, value: Padded) -> Any:
    """Writes ``y[mask, ...] = x[mask]``."""
    depth = mask.dim()
    fits = value_in(mask) is value.mask and all(x is Ellipsis or x == ALL for x in rest)
    if not fits or self.shape[:depth] != mask.shape or self.dim() - depth + 1 != value.ndim:
        return NotImplemented
    rows = value.rows.reshape((*mask.shape, *value.rows.shape[1:]))
    where = mask.reshape((*mask.shape, *[1] * (self.dim() - depth)))
    self.copy_(torch.where(where, rows, self))
    return None


def take(padded: Padded, func: Function, self: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    """Reads ``x.index_select(0, places)`` and ``x.gather(0, places)``."""
    rank = self.dim() if func.__name__ == "gather" else 1
    if index is not padded or padded.ndim != rank or dim != 0:
        return NotImplemented
    return padded.like(func(self, dim, padded.rows))


def index_add(
    padded: Padded,
    func: Function,
    self: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    *,
    alpha: float = 1,
) -> Any:
    """Computes ``y.index_add_(0, places, rows)``: rows that do not count are 0."""
    fits = index is padded and padded.ndim == 1 and dim in (0, -self.dim())
    if not fits or not isinstance(source, Padded):
        return NotImplemented
    return func(self, 0, padded.rows, alike(source, padded), alpha=alpha)


def _rows(rule: Callable, names: str) -> dict[str, Callable]:
    return dict.fromkeys(names.split(), rule)


NUMBERS = """abs acos asin atan atan2 add sub mul div true_divide floor_divide remainder fmod pow
neg exp exp2 expm1 log log2 log10 log1p logaddexp sqrt rsqrt square sin cos tan sinh cosh tanh erf
erfc reciprocal sign floor ceil round trunc frac clamp clamp_min clamp_max clip minimum maximum
eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or
bitwise_not bitwise_xor isnan isinf isfinite nan_to_num lerp addcmul addcdiv sigmoid relu relu6 gelu
silu elu celu selu leaky_relu softplus softsign hardtanh hardsigmoid hardswish mish logsigmoid
zeros_like ones_like full_like clone masked_fill"""

RULES: dict[str, Callable] = {
    **_rows(elementwise, NUMBERS),
    **dict.fromkeys(OPERATORS, elementwise),
    **{f"{x}_": in_place for x in NUMBERS.split()},
    **dict.fromkeys(IN_PLACE, in_place),
    **_rows(alias, "to float double half bfloat16 int long bool type type_as"),
    **_rows(alias, "detach contiguous cpu dropout"),
    **_rows(along, "sum mean any all prod amax amin max min argmax argmin logsumexp softmax"),
    **_rows(along, "log_softmax cumsum unsqueeze squeeze"),
    **_rows(layer, "linear layer_norm rms_norm embedding matmul mm __matmul__"),
    **_rows(loss, "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div"),
    **_rows(loss, "soft_margin_loss binary_cross_entropy binary_cross_entropy_with_logits"),
    "ctc_loss": ctc,
    **_rows(join, "cat concat stack"),
    **_rows(reshape, "view reshape"),
    "expand": expand,
    **_rows(ask, "dim is_floating_point is_complex"),
    "size": size,
    "numel": numel,
    "where": where,
    "__getitem__": get,
    "__setitem__": put,
    **_rows(take, "index_select gather"),
    **_rows(index_add, "index_add index_add_"),
}
