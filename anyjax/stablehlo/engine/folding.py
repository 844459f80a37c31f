"""Constant folding: small integer arithmetic on known values is done while tracing, because
polymorphic modules compute shapes by it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from anyjax.private_names import Inconclusive
from anyjax.stablehlo.core.region import Operation
from anyjax.stablehlo.core.static_values import is_known

SMALL = 64
COMPARE = {
    "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le,
    "GT": operator.gt, "GE": operator.ge,
}  # fmt: skip


def _truncated(x, y):
    """Divides towards zero."""
    quotient = np.floor_divide(np.abs(x), np.abs(y))
    return quotient * np.sign(x) * np.sign(y)


def either(numeric: Callable, symbolic: Callable) -> Callable:
    """Makes a rule for numbers, and for symbolic sizes if there are any."""

    def rule(x, y):
        if object not in (x.dtype, y.dtype):
            return numeric(x, y)
        return np.asarray(np.frompyfunc(symbolic, 2, 1)(x, y), object)

    return rule


_larger = either(np.maximum, jax.core.max_dim)
_smaller = either(np.minimum, jax.core.min_dim)

FOLDS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": either(_truncated, operator.floordiv),
    "remainder": either(np.fmod, operator.mod),
    "maximum": _larger,
    "minimum": _smaller,
    "negate": np.negative,
    "abs": lambda x: _larger(x, -x),
    "sign": np.sign,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "not": lambda x: ~x,
    "clamp": lambda low, x, high: _smaller(_larger(x, low), high),
    "compare": lambda x, y, direction, kind: np.asarray(COMPARE[direction](x, y)),
    "select": np.where,
    "convert": lambda result, x: x if x.dtype == object else x.astype(result.wide),
    "reshape": lambda result, x: x.reshape(result.shape),
    "concatenate": lambda xs, axis: np.concatenate(xs, axis),
    "slice": lambda x, start, stop, step: x[tuple(map(slice, start, stop, step))],
    "broadcast_in_dim": lambda result, x, at: _broadcast(result, x, at),
}
# Operations that only move values fold floats, too, such as the 0 that a sum starts from.
MOVES = {"reshape", "broadcast_in_dim", "slice", "concatenate"}


def _broadcast(result, x, at):
    shape = [1] * len(result.shape)
    for axis, size in zip(at, x.shape):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), result.shape)


def fold(op: Operation, arguments: Sequence[object]) -> np.ndarray | None:
    """Computes an operation whose operands are known and few; returns None for all others."""
    name = op.name.removeprefix("stablehlo.")
    rule, kinds = FOLDS.get(name), "iubOfcV" if name in MOVES else "iubO"
    if rule is None or not all(
        _few(x, kinds)
        for (kind, _), x in zip(op.arguments, arguments)
        if kind in ("value", "values")
    ):
        return None
    (result,) = op.types
    if None in result.shape or np.prod(result.shape, dtype=int) > SMALL:
        return None
    try:
        value = np.asarray(rule(*arguments))
    except Inconclusive:  # it depends on the sizes: the program decides
        return None
    if value.dtype == object:
        return value if result.wide.kind in "iu" else None
    return value.astype(result.wide)


def _few(value: object, kinds: str) -> bool:
    if isinstance(value, list):
        return all(_few(x, kinds) for x in value)
    return is_known(value) and value.dtype.kind in kinds and value.size <= SMALL
