"""Integers as bits: shifts, and, or, exclusive or."""

from __future__ import annotations

from jax import lax

from tojax.torch.core.schema import aten, lowers, table
from tojax.torch.ops._operands import operands


def _binary(function):
    """A ``lax`` function of two operands."""
    return lambda x, y, /: function(*operands(x, y))


table.update(
    {
        aten.bitwise_not: lax.bitwise_not,
        aten.bitwise_and: _binary(lax.bitwise_and),
        aten.bitwise_or: _binary(lax.bitwise_or),
        aten.bitwise_xor: _binary(lax.bitwise_xor),
        aten.bitwise_left_shift: _binary(lax.shift_left),
        aten.__lshift__: _binary(lax.shift_left),
    }
)


@lowers(aten.bitwise_right_shift, aten.__rshift__)
def shift_right(self, other):
    """By too many bits, or by a negative number, an unsigned integer is 0, and others are sign."""
    x, y = operands(self, other)
    shift = lax.shift_right_logical if x.dtype.kind == "u" else lax.shift_right_arithmetic
    return shift(x, y)
