"""The call of an operator on bucketed tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy
import torch
from torch.utils._pytree import tree_leaves, tree_map

from anyjax.torch.dynamo.buckets.bucketed import (
    Bucketed,
    Dim,
    Sizes,
    Unbucketed,
    Unequal,
    extent,
    is_static,
)

Operand: TypeAlias = "Bucketed | torch.Tensor"
Rule: TypeAlias = "Callable[..., Any]"  # of a Call and the operator's arguments


@dataclass(frozen=True)
class Call:
    """An operator, what its results are in the graph, and what sizes stand for."""

    op: Any
    metas: Any  # of the result, or of each
    sizes: Sizes

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The dimensions that the graph has for the result, or for the first one."""
        meta = self.metas[0] if isinstance(self.metas, (tuple, list)) else self.metas
        return self.sizes.dims(meta)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the operator on tensors and sizes of the buckets."""
        return self.op(*self.padded(args), **self.padded(kwargs))

    def padded(self, tree: Any) -> Any:
        """Returns arguments as tensors and sizes of the buckets."""

        def leaf(x: object) -> Any:
            if isinstance(x, Bucketed):
                return x.tensor
            return self.sizes.padded(x) if isinstance(x, sympy.Expr) else x

        return tree_map(leaf, tree)

    def number(self, x: object) -> Any:
        """Returns a number that is computed with; one of the graph's sizes as a traced number."""
        return self.sizes.count(x) if isinstance(x, sympy.Expr) else x

    def named(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Returns arguments by the names of the operator's schema, defaults filled in."""
        named = dict(kwargs)
        for i, argument in enumerate(self.op._schema.arguments):
            if i < len(args):
                named[argument.name] = args[i]
            elif argument.has_default_value():
                named.setdefault(argument.name, argument.default_value)
        return named

    def total(
        self, x: Bucketed, axes: list[int], keepdim: bool, dtype: torch.dtype
    ) -> torch.Tensor:
        """Returns the sum of what counts."""
        tensor = self.sizes.fill(x, 0, axes)
        return tensor.sum(axes, keepdim, dtype=dtype) if axes else tensor.to(dtype)

    def common(self, dims: Iterable[Dim]) -> Dim:
        """Returns the dimension that tensors broadcast to: of several factors, where one is."""
        dims = [dim for dim in dims if extent(dim) != 1] or [(1,)]
        out = max(dims, key=len)
        for dim in dims:
            if extent(dim) != extent(out):
                raise Unequal(extent(dim), extent(out))
        return out

    def broadcast(self, *tensors: Bucketed) -> tuple[list[Bucketed], tuple[Dim, ...]]:
        """Returns tensors in the factors that they have in common, and those dimensions."""
        rank = max(len(x.dims) for x in tensors)
        shapes = [((1,),) * (rank - len(x.dims)) + x.dims for x in tensors]
        dims = tuple(self.common(column) for column in zip(*shapes))
        return [self.factored(x, dims[rank - len(x.dims) :]) for x in tensors], dims

    def simple(self, x: Bucketed, *axes: int) -> Bucketed:
        """Returns a tensor whose elements that count are the first ones along dimensions."""
        for axis in map(x.axis, axes):
            if len(x.dims[axis]) > 1 and not is_static(x.dims[axis]):
                x = self.sizes.flatten(x, axis)
        return x

    def factored(self, x: Bucketed, dims: Sequence[Dim]) -> Bucketed:
        """Returns a tensor in the factors of ``dims``, which its dimensions broadcast to."""
        for axis, dim in enumerate(dims):
            if extent(x.dims[axis]) != 1 and not is_static(dim):
                x = self.sizes.alike(x, axis, dim)
        return x


def bucketed(x: Operand) -> Bucketed:
    """Returns a tensor as a bucketed one."""
    if isinstance(x, Bucketed):
        return x
    return Bucketed(x, tuple((n,) for n in x.shape))


def known(arguments: Any) -> Any:
    """Returns arguments that are no sizes of the result, but places in it, or shifts.

    Raises:
      Unbucketed: one depends on the sizes of the call, which are not those of the bucket.
    """
    if any(isinstance(x, sympy.Expr) for x in tree_leaves(arguments)):
        raise Unbucketed("a place that depends on sizes")
    return arguments


def static(x: Bucketed, *axes: int) -> None:
    """Checks that all elements along dimensions count.

    Raises:
      Unbucketed: some may not.
    """
    if any(not is_static(x.dims[axis]) for axis in axes):
        raise Unbucketed("along a dimension of which not all elements count")
