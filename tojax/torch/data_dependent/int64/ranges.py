"""Between which numbers the integers of a trace are, as far as that is known without their values.

Positions, masks and indices are small, and what is computed from them stays so; of an input nothing
is known. Rules are for integers of any size: whether 32 bits hold them is int64/overflow.py's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tojax.torch.core import sizes
from tojax.torch.core.lifting import inner
from tojax.torch.core.tensor import JaxTensor

Bounds = tuple[int, int]
NUMBERS = (int, float, torch.SymInt)
ANY: Bounds = (-(2**31), 2**31 - 1)  # all that an array of 32 bits holds
LARGE = 1 << 20  # elements of constants that are not looked at

# What moves values around, takes some of them, or fills up with arguments and zeros.
_MOVES = """alias alias_copy amax amin as_strided as_strided_copy broadcast_to cat chunk clone
concat constant_pad_nd contiguous copy detach detach_copy diag diag_embed diagonal diagonal_copy
diagonal_scatter expand expand_as expand_copy fill flatten flip full full_like gather hstack index
index_copy index_fill index_put index_select kthvalue lift_fresh_copy lift_fresh masked_fill
masked_scatter masked_select max maximum min minimum movedim mode narrow narrow_copy new_full
new_ones new_zeros ones ones_like permute permute_copy relu repeat reshape
_reshape_alias _reshape_copy roll rot90 scatter select select_copy select_scatter slice slice_copy
slice_scatter sort split split_copy split_with_sizes split_with_sizes_copy squeeze squeeze_copy
stack t t_copy take take_along_dim tile _to_copy to transpose transpose_copy topk tril triu unbind
unbind_copy unflatten unfold unfold_copy _unsafe_index _unsafe_view unsqueeze unsqueeze_copy view
view_as view_copy vstack where zeros zeros_like"""
MOVES = {*_MOVES.split()}
FILLS = {"constant_pad_nd", "fill", "full", "full_like", "index_fill", "masked_fill", "new_full"}
FILLS |= {"scatter", "where", "index_put"}  # whose numbers are values, not places
# What gives places, or counts of elements.
PLACES = {"argmax", "argmin", "argsort", "bucketize", "searchsorted"}
PLACES |= {"count_nonzero", "bincount", "nonzero"}
PAIRS = {"sort", "topk", "max", "min", "kthvalue", "mode", "median", "cummax", "cummin"}


def of(value: Any) -> Bounds | None:
    """The bounds of an operand; None where nothing is known, or it holds other than integers."""
    if isinstance(value, (bool, int)):
        return int(value), int(value)
    if isinstance(value, float):
        return (math.floor(value), math.ceil(value)) if math.isfinite(value) else None
    if isinstance(value, torch.SymInt):
        return sizes.limits(value)
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex():
        return None
    inside = inner(value)
    if isinstance(inside, JaxTensor):
        return inside.bounds or by_dtype(inside.dtype)
    if not 0 < inside.numel() <= LARGE:
        return by_dtype(inside.dtype)
    low, high = inside.aminmax() if inside.dtype is not torch.bool else (inside.all(), inside.any())
    return int(low), int(high)


def by_dtype(dtype: torch.dtype) -> Bounds | None:
    """Returns the limits of a narrow dtype."""
    if dtype is torch.bool:
        return 0, 1
    limits = torch.iinfo(dtype) if dtype.itemsize < 4 else None
    return limits and (limits.min, limits.max)


def corners(function: Callable[[int, int], int]) -> Callable[..., Bounds]:
    """The bounds of what has its extremes where its operands have them."""

    def rule(call: Any) -> Bounds:
        values = [function(x, y) for x in call.bounds(0) for y in call.bounds(1)]
        return min(values), max(values)

    return rule


def scaled(sign: int) -> Callable[..., Bounds]:
    """Of ``x + alpha * y``, or minus."""

    def rule(call: Any) -> Bounds:
        (low, high), (least, most) = call.bounds(0), call.bounds(1)
        alpha = of(call.argument("alpha", 2, 1)) or ANY
        ends = [sign * a * y for a in alpha for y in (least, most)]
        return low + min(ends), high + max(ends)

    return rule


def reversed_sub(call: Any) -> Bounds:
    """Of ``y - x``."""
    (low, high), (least, most) = call.bounds(0), call.bounds(1)
    return (least - high, most - low) if call.argument("alpha", 2, 1) == 1 else ANY


def total(call: Any) -> Bounds:
    """Of sums over at most all elements."""
    low, high = call.bounds(0)
    count = call.terms()
    return min(low * count, 0), max(high * count, 0)


def power(call: Any) -> Bounds:
    """Of ``x ** y`` with exponents that are small; negative ones give 0, 1 and -1."""
    (low, high), (_, most) = call.bounds(0), call.bounds(1)
    if most > 64:
        return ANY[0] * 2, ANY[1] * 2
    most = max(abs(low), abs(high), 1) ** max(most, 0)
    return (-most if low < 0 else 0), most


def shift(call: Any) -> Bounds:
    """Of ``x << y``."""
    (low, high), (_, most) = call.bounds(0), call.bounds(1)
    factor = 1 << min(max(most, 0), 64)
    return min(low * factor, low), max(high * factor, high)


def product(call: Any) -> Bounds:
    """Of products of at most all elements."""
    most = max(map(abs, call.bounds(0)), default=0)
    count = call.terms()
    bits = most.bit_length() * count if most > 1 else 0
    most = 1 if bits == 0 else 1 << min(bits, 64)
    return -most, most


def matrix(first: int) -> Callable[..., Bounds]:
    """Of products of matrices, the first of which is this argument."""

    def rule(call: Any) -> Bounds:
        if call.kwargs:  # factors of the two terms
            return 2 * ANY[0], 2 * ANY[1]
        most = max(map(abs, call.bounds(first))) * max(map(abs, call.bounds(first + 1)))
        most *= sizes.limits(call.args[first].shape[-1])[1]
        most += max(map(abs, call.bounds(0))) if first else 0
        return -most, most

    return rule


def remainder(call: Any) -> Bounds:
    """Of ``x % y``, which has the sign of y."""
    least, most = call.bounds(1)
    low, high = call.bounds(0)
    if least > 0 and low >= 0:
        return 0, min(most - 1, high)
    return min(least + 1, 0), max(most - 1, 0)


def shifted_right(call: Any) -> Bounds:
    """Of ``x >> y``."""
    low, high = call.bounds(0)
    return min(low, 0), max(high, 0)


def quotient(call: Any) -> Bounds:
    """Of integer division: no larger than what is divided."""
    most = max(map(abs, call.bounds(0)))
    return (0 if call.bounds(0)[0] >= 0 < call.bounds(1)[0] else -most), most


def bits(call: Any) -> Bounds:
    """Of bitwise operators of what is not negative."""
    ends = call.bounds(0), call.bounds(1)
    if min(low for low, _ in ends) < 0:
        return ANY
    return 0, (1 << max(high for _, high in ends).bit_length()) - 1


def common_bits(call: Any) -> Bounds:
    """Of ``x & y``: no more than the one that is not negative."""
    highs = [high for low, high in (call.bounds(0), call.bounds(1)) if low >= 0]
    return (0, min(highs)) if highs else ANY


def clamped(low_at: int | None, high_at: int | None) -> Callable[..., Bounds]:
    """Of values between those that these arguments give."""

    def rule(call: Any) -> Bounds:
        low, high = call.bounds(0)
        least, most = (
            None if at is None else call.limit(name, at)
            for name, at in (("min", low_at), ("max", high_at))
        )
        if least is not None:
            low, high = max(low, least[0]), max(high, least[1])
        if most is not None:
            low, high = min(low, most[0]), min(high, most[1])
        return low, high

    return rule


def magnitude(call: Any) -> Bounds:
    """Of ``abs(x)``."""
    low, high = call.bounds(0)
    return 0, max(abs(low), abs(high))


def count_to(call: Any) -> Bounds:
    """Of ``arange``, whose numbers are known."""
    numbers = [of(x) or ANY for x in call.args if isinstance(x, NUMBERS)]
    return min(0, *(x for x, _ in numbers)), max(0, *(x for _, x in numbers))


RULES: dict[str, Callable[[Any], Bounds]] = {
    "mul": corners(lambda x, y: x * y),
    "add": scaled(1),
    "sub": scaled(-1),
    "rsub": reversed_sub,
    "neg": lambda call: (-call.bounds(0)[1], -call.bounds(0)[0]),
    "abs": magnitude,
    "sign": lambda call: (-1, 1),
    "one_hot": lambda call: (0, 1),
    "square": lambda call: (0, max(map(abs, call.bounds(0))) ** 2),
    "pow": power,
    "bitwise_left_shift": shift,
    "__lshift__": shift,
    "bitwise_right_shift": shifted_right,
    "__rshift__": shifted_right,
    "sum": total,
    "cumsum": total,
    "prod": product,
    "cumprod": product,
    "mm": matrix(0),
    "bmm": matrix(0),
    "matmul": matrix(0),
    "mv": matrix(0),
    "dot": matrix(0),
    "addmm": matrix(1),
    "baddbmm": matrix(1),
    "remainder": remainder,
    "floor_divide": quotient,
    "div": quotient,
    "bitwise_and": common_bits,
    "bitwise_or": bits,
    "bitwise_xor": bits,
    "clamp": clamped(1, 2),
    "clamp_min": clamped(1, None),
    "clamp_max": clamped(None, 1),
    "arange": count_to,
}
