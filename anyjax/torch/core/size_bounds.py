"""Least and greatest values of symbolic sizes, and numbers that sizes make."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import jax

from anyjax.private_names import Inconclusive
from anyjax.torch.core import current_trace, private
from anyjax.torch.core.lengths import Lengths, Size, decided

FINE = 1 << 20  # the largest denominator of an exact multiple
Ratio: TypeAlias = "tuple[Size, int] | None"


def at_least(size: Size, least: int) -> bool | None:
    """Returns whether a size is at least so large; None if some of its values are.

    Example:
      >>> (length,) = jax.export.symbolic_shape("length", constraints=["length >= 4"])
      >>> at_least(length, 2), at_least(length - length, 1), at_least(length, 5)
      (True, False, None)
    """
    if decided(size):
        low, high = lengths().interval(size)
        return at_least(low, least) or (None if at_least(high, least) is not False else False)
    try:
        return bool(size >= least)
    except Inconclusive:
        return None


def lengths() -> Lengths:
    """Returns the lengths that values of the trace decide."""
    return current_trace.trace().lengths


EXTREMES: dict[str, Callable] = {"max": jax.core.max_dim, "min": jax.core.min_dim}


def extreme(name: str, x: Size, y: Size) -> Size:
    """Returns the larger ("max") or the smaller ("min") of two."""
    if not decided(x - y):
        return EXTREMES[name](x, y)
    if at_least(x - y, 0):
        return x if name == "max" else y
    if at_least(y - x, 0):
        return y if name == "max" else x
    return private.unsimplified(name, x, y)


def product(first: Ratio, second: Ratio) -> Ratio:
    """Returns the product of two ratios, None where that, or one of them, is not exact.

    Example:
      >>> product((3, 1), ratio(0.5)), ratio(0.1)
      ((3, 2), None)
    """
    if first is None or second is None or first[1] * second[1] > FINE:
        return None
    return first[0] * second[0], first[1] * second[1]


def ratio(x: float) -> Ratio:
    """Returns a number as (size, denominator), if that is a small power of two."""
    above, below = x.as_integer_ratio()
    return (above, below) if below <= FINE else None


def whole(size: Size, divisor: int, name: str) -> Size | None:
    """Returns a ratio, not below 0, as an integer: "floor", "trunc" or "ceil" of it; "round" of
    what is one. None where it is not known.
    """
    if divisor < 1 or not at_least(size, 0) or (name == "round" and divisor > 1):
        return None
    return -(-size // divisor) if name == "ceil" else size // divisor
