"""The larger or smaller of two operands: maximum, clamp and their relatives, with torch's gradients
where operands are equal, and where one is NaN.
"""

from __future__ import annotations

import jax
import numpy as np
import torch
from jax import lax

from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import binary_of, exact, is_number, operands, select


def _larger(function, beyond):
    """``lax.max`` or ``lax.min``, whose gradient is halved between equal operands; where one is NaN
    both have all of it.
    """
    chosen = jax.custom_jvp(function)

    @chosen.defjvp
    def jvp(primals, tangents):
        x, y = primals
        halves = [select(lax.eq(x, y), t / 2, t) for t in tangents]
        first = select(beyond(y, x), 0, halves[0])
        return function(x, y), first + select(beyond(x, y), 0, halves[1])

    return binary_of(lambda x, y: function(x, y) if exact(x) else chosen(x, y))


_maximum, _minimum = _larger(lax.max, lax.gt), _larger(lax.min, lax.lt)
table.update(
    {
        aten.maximum: _maximum,
        aten.minimum: _minimum,
        aten.max.other: _maximum,
        aten.min.other: _minimum,
    }
)


def _at_a_bound() -> bool:
    """Whether clamp passes gradient to what equals a bound: torch did until 2.13, and not in 2.15,
    where equal tensors share it.
    """
    with torch.enable_grad():
        x = torch.ones(1, requires_grad=True)
        return bool(torch.autograd.grad(x.clamp(max=1.0), x)[0])


AT_A_BOUND = _at_a_bound()


@lowers(aten.clamp, aten.clip)
def clamp(self, min, max):
    """A NaN bound gives NaN."""
    if min is not None:
        self = clamp_min(self, min)
    return self if max is None else clamp_max(self, max)


@lowers(aten.clamp_min)
def clamp_min(self, min):
    x, low = operands(self, min)
    if not AT_A_BOUND and not is_number(min):
        return lax.max(x, low)
    compares = (lax.ge, lax.lt) if AT_A_BOUND else (lax.gt, lax.le)
    return _bounded(x, low, *compares)


@lowers(aten.clamp_max)
def clamp_max(self, max):
    x, high = operands(self, max)
    if not AT_A_BOUND and not is_number(max):
        return lax.min(x, high)
    compares = (lax.le, lax.gt) if AT_A_BOUND else (lax.lt, lax.ge)
    return _bounded(x, high, *compares)


def _bounded(x, bound, inside, outside):
    """Where one of the two is NaN the result is NaN, and has no gradient."""
    beyond = bound if exact(x) else select(outside(x, bound), bound, np.nan)
    return select(inside(x, bound), x, beyond)


@lowers(aten.fmax)
def fmax(self, other):
    """Ties give all the gradient to ``self``."""
    x, y = operands(self, other)
    return select((x >= y) | (y != y), x, y)


@lowers(aten.fmin)
def fmin(self, other):
    x, y = operands(self, other)
    return select((x <= y) | (y != y), x, y)
