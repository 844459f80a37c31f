"""How a tensor lies in memory. The results of a program must lie as torch expects it: code after a
compiled graph makes views by strides that were worked out before it ran.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import torch
from jax import lax

Size: TypeAlias = "int | torch.SymInt | torch.SymFloat"
Sizes: TypeAlias = "Mapping[Any, int]"  # by sympy's symbols


def concrete(size: Size, sizes: Sizes) -> Any:
    """Returns a size of a graph as a number, by those of its symbols; None if it depends on values.

    Example:
      >>> concrete(3, {})
      3
    """
    if isinstance(size, int):
        return size
    number = size.node.expr.subs(sizes)
    if not number.is_number:
        return None
    return float(number) if isinstance(size, torch.SymFloat) else int(number)


class Symbols:
    """Where the symbols of a graph's sizes stand among its inputs: sizes, strides and numbers."""

    def __init__(self, metas: Sequence[object]):
        self.places: dict[Any, tuple[int, str, int]] = {}
        for i, meta in enumerate(metas):
            if isinstance(meta, torch.Tensor):
                for j, (size, stride) in enumerate(zip(meta.shape, meta.stride())):
                    self._add(stride, (i, "stride", j))
                    self._add(size, (i, "size", j))
            else:
                self._add(meta, (i, "", 0))

    def _add(self, size: object, place: tuple[int, str, int]) -> None:
        if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
            self.places[size.node.expr] = place

    def sizes(self, args: Sequence[Any]) -> Sizes:
        """Returns what the symbols stand for in a call."""
        return {
            symbol: getattr(args[i], name)(axis) if name else args[i]
            for symbol, (i, name, axis) in self.places.items()
        }


@dataclass(frozen=True)
class Layout:
    """The sizes and strides of a tensor.

    Example:
      >>> layout = Layout((2, 3, 4), (12, 1, 3))
      >>> layout.order, layout.is_plain
      ((0, 2, 1), False)
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, meta: torch.Tensor, sizes: Sizes) -> Layout | None:
        """Returns the layout of a tensor of a graph, None if its sizes depend on values."""
        numbers = [concrete(n, sizes) for n in (*meta.shape, *meta.stride())]
        numeric = tuple(n for n in numbers if n is not None)
        if len(numeric) < len(numbers):
            return None
        return cls(numeric[: meta.ndim], numeric[meta.ndim :])

    @functools.cached_property
    def order(self) -> tuple[int, ...]:
        """The dimensions from the outermost one in memory to the innermost."""
        return tuple(sorted(range(len(self.shape)), key=lambda i: (-self.strides[i], i)))

    @functools.cached_property
    def places(self) -> tuple[int, ...]:
        """The place of each dimension in that order."""
        return tuple(sorted(range(len(self.shape)), key=self.order.__getitem__))

    @functools.cached_property
    def stored(self) -> tuple[int, ...]:
        """The shape without what is expanded: elements of stride 0 are one."""
        return tuple(n if step else min(n, 1) for n, step in zip(self.shape, self.strides))

    @functools.cached_property
    def has_gaps(self) -> bool:
        """Whether there is memory between the elements that is not theirs."""
        sizes = [self.stored[i] for i in self.order]
        steps = (math.prod(sizes[i + 1 :]) for i in range(len(sizes)))
        strides = (self.strides[i] for i in self.order)
        return any(n > 1 and step != s for n, step, s in zip(sizes, steps, strides))

    @functools.cached_property
    def is_plain(self) -> bool:
        """Whether a tensor lies so by itself: contiguous."""
        in_order = self.order == tuple(range(len(self.shape)))
        return in_order and self.stored == self.shape and not self.has_gaps

    def to_memory(self, array: jax.Array) -> jax.Array:
        """Returns an array with its dimensions in the order of memory."""
        stored = lax.slice(array, (0,) * array.ndim, self.stored)
        return lax.transpose(stored, self.order)

    def from_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor that lies so, of one with its dimensions in the order of memory."""
        if self.is_plain:
            return tensor
        tensor = tensor.permute(self.places)
        if self.has_gaps:
            empty = torch.empty_strided(self.stored, self.strides, dtype=tensor.dtype)
            tensor = empty.copy_(tensor)
        return tensor.expand(self.shape)

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a view of a tensor with its dimensions in the order of memory."""
        return tensor if self.is_plain else tensor.permute(self.order)

    def of_view(self, array: jax.Array) -> jax.Array:
        """Returns the array of what ``view`` gave."""
        return array if self.is_plain else lax.transpose(array, self.places)
