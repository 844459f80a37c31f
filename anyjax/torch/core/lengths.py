"""Lengths that values decide: each is a traced number within a bound that the program knows.

Torch code reads such a length as a symbolic size (see sizes.py); its symbol begins with ``PREFIX``.
It is at least 0, where JAX's own symbols are at least 1, so what is known of it is worked out here.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

import jax
from jax import lax

from anyjax.torch.core import private

Size = Any  # an int, or JAX's symbolic dimension: a class without a public name
PREFIX = "n__"


class Length(NamedTuple):
    """The traced number that a symbol stands for, its bound, and the code that made it; the
    ``shape`` of the mask that chooses so many; the bits of the inputs that it comes from.
    """

    number: jax.Array
    bound: Size
    place: str
    shape: tuple[Size, ...] = ()
    least: int = 0
    origins: int = 0


class Lengths(dict[str, Length]):
    """The lengths of one trace, by symbol; ``scope`` is that of the program's own symbols."""

    def __init__(self) -> None:
        super().__init__()
        self.scope: Any = None
        self.numbers: dict[Size, jax.Array] = {}

    def new(self, length: Length, name: str = "") -> Size:
        """Returns a size that is such a number."""
        self.scope = getattr(length.bound, "scope", self.scope) or jax.export.SymbolicScope()
        name = PREFIX + (name or str(len(self)))
        self[name] = length
        return jax.export.symbolic_shape(name, scope=self.scope)[0]

    def value(self, size: Size) -> jax.Array:
        """Returns a size as a number of the program."""
        if size not in self.numbers:
            numbers = {
                name: self[name].number if name in self else _value(_symbol(size, name))
                for name in private.symbols(size)
            }
            self.numbers[size] = private.evaluated(size, numbers)
        return self.numbers[size]

    def interval(self, size: Size) -> tuple[Size, Size]:
        """Returns the least and the greatest that a size can be, in the program's own symbols."""
        if not decided(size):  # an operand of a function may be a number in JAX's class
            is_number = not isinstance(size, int) and not private.symbols(size)
            return (int(size),) * 2 if is_number else (size, size)
        low: Size = 0
        high: Size = 0
        for factors, times in private.terms(size):
            ends = self._of_product(factors, size.scope)
            least, most = ends if times > 0 else ends[::-1]
            low, high = low + least * times, high + most * times
        return low, high

    def _of_product(self, factors: list, scope: jax.export.SymbolicScope) -> tuple[Size, Size]:
        low: Size = 1
        high: Size = 1
        for factor, power in factors:
            least, most = self._of_factor(factor, scope)
            for _ in range(power):
                ends = [x * y for x in (low, high) for y in (least, most)]
                signed = all(isinstance(x, int) for x in ends)  # else of lengths, none below 0
                low, high = (min(ends), max(ends)) if signed else (ends[0], ends[-1])
        return low, high

    def _of_factor(self, factor: Any, scope: jax.export.SymbolicScope) -> tuple[Size, Size]:
        if factor.var is not None:
            if factor.var in self:
                return self[factor.var].least, self[factor.var].bound
            return (jax.export.symbolic_shape(factor.var, scope=scope)[0],) * 2
        (low, high), (least, most) = (self.interval(x) for x in factor.operands)
        if factor.operation == "floordiv":
            divisor = jax.core.max_dim(least, 1)
            return low // (divisor if isinstance(low, int) and low < 0 else most), high // divisor
        if factor.operation == "mod":
            return 0, most - 1
        join = jax.core.max_dim if factor.operation == "max" else jax.core.min_dim
        return join(low, least), join(high, most)

    def origins(self, size: Size) -> int:
        """Returns the bits of the inputs that a size comes from."""
        bits = (self[x].origins for x in private.symbols(size) if x in self)
        return functools.reduce(operator.or_, bits, 0)

    def places(self, size: Size) -> str:
        """Returns the code that a size comes from."""
        return ", ".join(dict.fromkeys(self[x].place for x in private.symbols(size) if x in self))


def decided(size: Size) -> bool:
    """Returns whether values decide a size.

    Example:
      >>> decided(3), decided(jax.export.symbolic_shape("batch")[0])
      (False, False)
    """
    return not isinstance(size, int) and any(x.startswith(PREFIX) for x in private.symbols(size))


def _symbol(size: Size, name: str) -> Size:
    return jax.export.symbolic_shape(name, scope=size.scope)[0]


def _value(size: Size) -> jax.Array:
    return lax.shape_as_value((size,))[0]
