"""Tensors of which some elements count: as many as values decide, the first ones of a dimension.

The size of a dimension is an expression in symbols (core/lengths.py). The program has as many
elements as it can be at most, and the number that count is a traced one. Where dimensions were
merged, as in ``x.view(batch * length, width)``, those that count are not the first ones, so a
dimension is a tuple of its factors, from the outermost to the innermost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from anyjax.torch.core import current_trace, sizes
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.core.lengths import Lengths, Size, decided
from anyjax.torch.core.lifting import array_of
from anyjax.torch.core.size_bounds import at_least
from anyjax.torch.core.tensor import JaxTensor

Dim: TypeAlias = "tuple[Size, ...]"


class Unserved(Exception):
    """No rule serves an operator, or these arguments of it."""


def is_static(dim: Dim) -> bool:
    """Returns whether all elements of a dimension count."""
    return not any(map(decided, dim))


def extent(dim: Dim) -> Size:
    """Returns the size of a dimension.

    Example:
      >>> extent((3, 2))
      6
    """
    return math.prod(dim)


def traced(tensor: torch.Tensor) -> JaxTensor:
    """Returns a constant as a tensor of the trace."""
    return tensor if isinstance(tensor, JaxTensor) else JaxTensor(array_of(tensor), tensor.dtype)


@dataclass(frozen=True)
class Counted:
    """A tensor with all elements that may count, and the factors of its dimensions."""

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
    """Sizes as numbers: of the elements that the program has, and of those that count."""

    def __init__(self, lengths: Lengths):
        self.lengths = lengths

    def dims(self, meta: torch.Tensor) -> tuple[Dim, ...]:
        """Returns the dimensions of a tensor without values, each of one factor."""
        return tuple((sizes.to_jax(n),) for n in meta.shape)

    def padded(self, size: Size) -> Any:
        """Returns how many elements the program has, as torch code has sizes."""
        if decided(size):
            low, size = self.lengths.interval(size)
            if at_least(low, 0) is False:  # of int(lengths.max()) nothing says how large
                raise Unserved("a size that nothing bounds, or that may be below 0")
        return sizes.to_torch((size,))[0]

    def count(self, size: Size) -> Any:
        """Returns how many elements count, a traced number where it is not a known one."""
        if not decided(size):
            return sizes.to_torch((size,))[0]
        count = self.lengths.value(size)
        return JaxTensor(count.astype(to_jax(torch.int64)), torch.int64)

    def counts_of(self, dims: Iterable[Dim]) -> Any:
        """Returns how many elements of some dimensions together count."""
        return math.prod(self.count(factor) for dim in dims for factor in dim)

    def shape(self, dims: Sequence[Dim]) -> tuple[Any, ...]:
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
        self, x: Counted, value: float | bool = 0, dims: Iterable[int] | None = None
    ) -> torch.Tensor:
        """Returns a tensor with a value in place of what does not count along ``dims``."""
        tensor = x.tensor
        for dim in x.symbolic if dims is None else dims:
            if not is_static(x.dims[dim]):
                mask = self.mask(x.dims[dim]).reshape(-1, *[1] * (tensor.dim() - dim - 1))
                tensor = torch.where(mask, tensor, torch.full((), value, dtype=tensor.dtype))
        return tensor

    def regroup(self, x: Counted, axis: int, dim: Dim) -> Counted:
        """Returns a tensor with a dimension of one factor in those of ``dim``, their product."""
        place: Any = 0
        for factor in dim:
            place = place * self.count(factor) + torch.arange(self.padded(factor))
            place = place[..., None]
        return self._take(x, axis, torch.as_tensor(place).reshape(-1), dim)

    def flatten(self, x: Counted, axis: int) -> Counted:
        """Returns a tensor with a merged dimension as one factor: what counts comes first."""
        merged: Dim = (extent(x.dims[axis]),)
        rest: Any = torch.arange(self.padded(merged[0]))
        place: Any = torch.zeros((), dtype=torch.int64)
        step = 1
        for factor in reversed(x.dims[axis]):
            count = self.count(factor)
            count = count.clamp(min=1) if isinstance(count, torch.Tensor) else count
            place, rest = place + rest % count * step, rest // count
            step *= self.padded(factor)
        return self._take(x, axis, place, merged)

    def _take(self, x: Counted, axis: int, place: torch.Tensor, dim: Dim) -> Counted:
        last = x.tensor.shape[axis] - 1
        place = place.clamp(0, max(last, 0) if isinstance(last, int) else last)
        dims = (*x.dims[:axis], dim, *x.dims[axis + 1 :])
        return Counted(x.tensor.index_select(axis, place), dims)

    def assumed(self, x: Counted, axis: int, dim: Dim, spread: bool = False) -> Counted:
        """Returns a tensor whose size, or that of ``dim``, has to be a number that is known, which
        the program checks: torch raises for another one, except for one row that is to ``spread``.

        Raises:
          Unserved: neither is, or it can not be that.
        """
        run, size, target = current_trace.trace(), extent(x.dims[axis]), extent(dim)
        numbers = [n for n in (size, target) if isinstance(n, int)]
        sized = [n for n in (size, target) if decided(n)]
        fits = len(numbers) == len(sized) == 1 and self.padded(sized[0]) >= numbers[0]
        if not fits or not run.differentiates or run.conditions is None:
            raise Unserved(f"sizes {size}, {target}")
        count = self.count(sized[0])
        holds = (count == numbers[0]) | (count == 1) if spread else count == numbers[0]
        run.conditions.append(array_of(holds))
        x = self.flatten(x, axis) if len(x.dims[axis]) > 1 else x
        if spread:
            places = torch.arange(self.padded(target)).clamp(max=(count - 1).clamp(min=0))
            return self._take(x, axis, places, (target,))
        dims = (*x.dims[:axis], (target,), *x.dims[axis + 1 :])
        length = self.padded(target)
        if decided(size):
            return Counted(x.tensor.narrow(axis, 0, length), dims)
        pads = [0, 0] * (len(x.dims) - axis - 1) + [0, length - x.tensor.shape[axis]]
        return Counted(torch.ops.aten.constant_pad_nd(x.tensor, pads), dims)

    def alike(self, x: Counted, axis: int, dim: Dim, spread: bool = False) -> Counted:
        """Returns a tensor with a dimension in the factors of ``dim``.

        Raises:
          Unserved: they are of another size.
        """
        if x.dims[axis] == dim:
            return x
        if extent(x.dims[axis]) != extent(dim):
            return self.assumed(x, axis, dim, spread)
        x = self.flatten(x, axis) if len(x.dims[axis]) > 1 else x
        return self.regroup(x, axis, dim) if len(dim) > 1 else x
