"""Tensors whose sizes are those of buckets: which of their elements count.

A size of a graph is an expression in symbols. Each symbol stands for two numbers: the size of its
bucket, which the program is compiled for, and the size that the call has, a traced number. Of a
dimension the first elements count, as many as the call has; where dimensions were merged, as in
``x.view(batch * length, width)``, those that count are not the first ones, so a dimension is a
tuple of its factors, from the outermost to the innermost.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import sympy
import torch

Expr: TypeAlias = "sympy.Expr | int"
Dim: TypeAlias = "tuple[Expr, ...]"

# Functions in torch's expressions, of traced numbers.
FUNCTIONS = {
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "PythonMod": operator.mod,
    "Mod": operator.mod,
    "ToFloat": lambda x: x.double(),
    "FloatTrueDiv": operator.truediv,
    "IntTrueDiv": lambda x, y: x / torch.as_tensor(y).double(),
}


class Unbucketed(Exception):
    """An operator cannot be served for a bucket; the program is made for the sizes themselves."""


class Unequal(Unbucketed):
    """An operator needs two sizes to be one that are different expressions."""

    def __init__(self, *sizes: Expr):
        super().__init__(f"sizes {', '.join(map(str, sizes))}")
        self.sizes = sizes


def bucket(size: int) -> int:
    """Returns the bucket of a size: two in each octave, so that at most a third is padding.

    Example:
      >>> [bucket(n) for n in (1, 3, 5, 8, 9, 17, 33, 1000)]
      [1, 3, 6, 8, 12, 24, 48, 1024]
    """
    step = 1 << max(0, (size - 1).bit_length() - 2)
    return -(-size // step) * step


def is_static(dim: Dim) -> bool:
    """Returns whether all elements of a dimension count."""
    return all(isinstance(factor, int) for factor in dim)


def extent(dim: Dim) -> Expr:
    """Returns the size of a dimension.

    Example:
      >>> s = sympy.Symbol("s")
      >>> extent((s, 2)), extent((3, 2))
      (2*s, 6)
    """
    product = sympy.expand(sympy.prod(dim))
    return int(product) if product.is_number else product


@dataclass(frozen=True)
class Bucketed:
    """A tensor of the sizes of buckets, and the factors of its dimensions."""

    tensor: torch.Tensor
    dims: tuple[Dim, ...]

    def axis(self, dim: int) -> int:
        """Returns the number of a dimension counted from the front."""
        return dim % len(self.dims) if self.dims else 0

    @property
    def symbolic(self) -> list[int]:
        """The dimensions of which not all elements count."""
        return [i for i, dim in enumerate(self.dims) if not is_static(dim)]


class Sizes:
    """The sizes of ``buckets`` that symbols stand for, and ``counts``, traced numbers. Symbols that
    are ``equal`` to others stand for the same.
    """

    def __init__(
        self,
        buckets: Mapping[Any, int],
        counts: Mapping[Any, torch.Tensor] = MappingProxyType({}),
        equal: Mapping[Any, Any] = MappingProxyType({}),
    ):
        self.buckets, self.counts, self.equal = buckets, counts, equal
        self.numbers: dict[Expr, int] = {}

    def expression(self, size: object) -> Any:
        """Returns a size of a graph, or a number that follows from sizes, as an expression; a
        number where it is one.
        """
        if isinstance(size, (int, float)):
            return size
        if not isinstance(size, (torch.SymInt, torch.SymFloat)):
            raise Unbucketed(f"a {type(size).__name__}")
        expr = sympy.expand(size.node.expr.subs(self.equal))
        if not expr.is_number:
            return expr
        return int(expr) if isinstance(size, torch.SymInt) else float(expr)

    def dims(self, meta: torch.Tensor) -> tuple[Dim, ...]:
        """Returns the dimensions of a tensor of a graph, each of one factor."""
        return tuple((self.expression(n),) for n in meta.shape)

    def padded(self, expr: Expr) -> int:
        """Returns a size in the bucket."""
        if isinstance(expr, int):
            return expr
        if expr not in self.numbers:
            size = expr.subs(self.buckets)
            if not size.is_Integer:
                raise Unbucketed(f"the size {expr}")
            self.numbers[expr] = int(size)
        return self.numbers[expr]

    def count(self, expr: Expr) -> torch.Tensor | int:
        """Returns how many elements count, a traced number where it is not a known one."""
        if isinstance(expr, int):
            return expr
        if not expr.free_symbols <= set(self.counts):
            raise Unbucketed(f"the size {expr}")
        symbols = sorted(expr.free_symbols, key=str)
        try:
            function = sympy.lambdify(symbols, expr, [FUNCTIONS, "math"])
            return function(*(self.counts[x] for x in symbols))
        except (NameError, TypeError):
            raise Unbucketed(f"the size {expr}") from None

    def counts_of(self, dims: Iterable[Dim]) -> torch.Tensor | int:
        """Returns how many elements of some dimensions together count."""
        return math.prod(self.count(factor) for dim in dims for factor in dim)

    def shape(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        """Returns the shape of a tensor with these dimensions."""
        return tuple(math.prod(map(self.padded, dim)) for dim in dims)

    def mask(self, dim: Dim) -> torch.Tensor:
        """Returns which elements of a dimension count."""
        mask = torch.ones(1, dtype=torch.bool)
        for factor in dim:
            counts = torch.arange(self.padded(factor)) < self.count(factor)
            mask = (mask[:, None] & counts).reshape(-1)
        return mask

    def fill(
        self, x: Bucketed, value: float | bool = 0, dims: Iterable[int] | None = None
    ) -> torch.Tensor:
        """Returns a tensor with a value in place of what does not count along ``dims``."""
        tensor = x.tensor
        for dim in x.symbolic if dims is None else dims:
            if not is_static(x.dims[dim]):
                mask = self.mask(x.dims[dim]).reshape(-1, *[1] * (tensor.dim() - dim - 1))
                tensor = torch.where(mask, tensor, torch.full((), value, dtype=tensor.dtype))
        return tensor

    def regroup(self, x: Bucketed, axis: int, dim: Dim) -> Bucketed:
        """Returns a tensor with a dimension of one factor in those of ``dim``, their product."""
        place: torch.Tensor | int = 0
        for factor in dim:
            place = place * self.count(factor) + torch.arange(self.padded(factor))
            place = place[..., None]
        return self._take(x, axis, torch.as_tensor(place).reshape(-1), dim)

    def flatten(self, x: Bucketed, axis: int) -> Bucketed:
        """Returns a tensor with a merged dimension as one factor: what counts comes first."""
        merged: Dim = (extent(x.dims[axis]),)
        rest, place, step = (
            torch.arange(self.padded(merged[0])),
            torch.zeros((), dtype=torch.int64),
            1,
        )
        for factor in reversed(x.dims[axis]):
            count = self.count(factor)
            place, rest = place + rest % count * step, rest // count
            step *= self.padded(factor)
        return self._take(x, axis, place, merged)

    def _take(self, x: Bucketed, axis: int, place: torch.Tensor, dim: Dim) -> Bucketed:
        place = place.clamp(0, max(x.tensor.shape[axis] - 1, 0))
        dims = (*x.dims[:axis], dim, *x.dims[axis + 1 :])
        return Bucketed(x.tensor.index_select(axis, place), dims)

    def alike(self, x: Bucketed, axis: int, dim: Dim) -> Bucketed:
        """Returns a tensor with a dimension in the factors of ``dim``.

        Raises:
          Unequal: they are of another size.
        """
        if x.dims[axis] == dim:
            return x
        if extent(x.dims[axis]) != extent(dim):
            raise Unequal(extent(x.dims[axis]), extent(dim))
        x = self.flatten(x, axis) if len(x.dims[axis]) > 1 else x
        return self.regroup(x, axis, dim) if len(dim) > 1 else x
