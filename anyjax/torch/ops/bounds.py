"""The larger or smaller of two operands: maximum, clamp and their relatives, with torch's gradients
where operands are equal.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import torch
from jax import lax

from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import binary_of, is_number, operands, select

table.update(
    {
        aten.maximum: binary_of(lax.max),
        aten.minimum: binary_of(lax.min),
        aten.max.other: binary_of(lax.max),
        aten.min.other: binary_of(lax.min),
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
    outside = lax.lt(x, low) if AT_A_BOUND else lax.le(x, low)
    return select(_beyond(outside, min), low, x)


@lowers(aten.clamp_max)
def clamp_max(self, max):
    x, high = operands(self, max)
    if not AT_A_BOUND and not is_number(max):
        return lax.min(x, high)
    outside = lax.gt(x, high) if AT_A_BOUND else lax.ge(x, high)
    return select(_beyond(outside, max), high, x)


def _beyond(outside, bound):
    """Where the bound is the result: outside of it, and where it is NaN itself."""
    if is_number(bound) and not math.isnan(bound):
        return outside
    return lax.bitwise_or(outside, jnp.broadcast_to(jnp.isnan(bound), outside.shape))


@lowers(aten.fmax)
def fmax(self, other):
    """Ties give all the gradient to ``self``."""
    x, y = operands(self, other)
    return select((x >= y) | (y != y), x, y)


@lowers(aten.fmin)
def fmin(self, other):
    x, y = operands(self, other)
    return select((x <= y) | (y != y), x, y)
