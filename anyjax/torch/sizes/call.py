"""The call of an operator on tensors of which some elements count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

import jax
import torch
from torch.utils._pytree import tree_leaves, tree_map

from anyjax.torch.core import current_trace, sizes
from anyjax.torch.core.lengths import Size, decided
from anyjax.torch.core.lifting import array_of
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.sizes.counted import (
    Counted,
    Dim,
    Sizes,
    Unserved,
    extent,
    is_static,
)
from anyjax.typing import PyTree

Operand: TypeAlias = "Counted | torch.Tensor"
Rule: TypeAlias = "Callable[..., Any]"  # of a Call and the operator's arguments


@dataclass(frozen=True)
class Call:
    """An operator, its results without values, and what sizes stand for."""

    op: Any
    metas: Any  # of the result, or of each
    sizes: Sizes

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The dimensions of the result, or of the first one."""
        meta = self.metas[0] if isinstance(self.metas, (tuple, list)) else self.metas
        return self.sizes.dims(meta)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the operator on all elements."""
        return self.op(*self.padded(args), **self.padded(kwargs))

    def padded(self, tree: PyTree) -> Any:
        """Returns arguments as tensors of all elements, and their sizes."""

        def leaf(x: object) -> Any:
            if isinstance(x, Counted):
                return x.tensor
            return self.sizes.padded(x) if is_size(x) else x

        return tree_map(leaf, tree)

    def number(self, x: object) -> Any:
        """Returns a number that is computed with; a size as a traced number."""
        if isinstance(x, torch.SymFloat):
            return JaxTensor(x.node.value, torch.get_default_dtype())
        return self.sizes.count(x) if is_size(x) else x

    def named(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Returns arguments by the names of the operator's schema, defaults filled in."""
        named = dict(kwargs)
        for i, argument in enumerate(self.op._schema.arguments):
            if i < len(args):
                named[argument.name] = args[i]
            elif argument.has_default_value():
                named.setdefault(argument.name, argument.default_value)
        return named

    def check(self, holds: Callable[[], Any], x: Counted, axes: Iterable[int]) -> None:
        """Makes floats of the program NaN where a condition on the sizes of dimensions fails."""
        conditions = current_trace.trace().conditions
        if conditions is not None and not all(is_static(x.dims[i]) for i in axes):
            conditions.append(array_of(holds()))

    def total(self, x: Counted, axes: list[int], keepdim: bool, dtype: torch.dtype) -> torch.Tensor:
        """Returns the sum of what counts."""
        tensor = self.sizes.fill(x, 0, axes)
        return tensor.sum(axes, keepdim, dtype=dtype) if axes else tensor.to(dtype)

    def common(self, dims: Iterable[Dim]) -> Dim:
        """Returns the dimension that tensors broadcast to: of several factors, where one is."""
        dims = [dim for dim in dims if extent(dim) != 1] or [(1,)]
        out = max(dims, key=len)
        numbers = [dim for dim in dims if isinstance(extent(dim), int)]
        if numbers and any(extent(dim) != extent(out) for dim in dims):
            return numbers[0]  # which the others have to be, see Sizes.assumed
        for dim in dims:
            if extent(dim) != extent(out):
                raise Unserved(f"sizes {extent(dim)}, {extent(out)}")
        return out

    def broadcast(self, *tensors: Counted) -> tuple[list[Counted], tuple[Dim, ...]]:
        """Returns tensors in the factors that they have in common, and those dimensions."""
        rank = max(len(x.dims) for x in tensors)
        shapes = [((1,),) * (rank - len(x.dims)) + x.dims for x in tensors]
        dims = tuple(self.common(column) for column in zip(*shapes))
        return [self.factored(x, dims[rank - len(x.dims) :]) for x in tensors], dims

    def simple(self, x: Counted, *axes: int) -> Counted:
        """Returns a tensor whose elements that count are the first ones along dimensions."""
        for axis in map(x.axis, axes):
            if len(x.dims[axis]) > 1 and not is_static(x.dims[axis]):
                x = self.sizes.flatten(x, axis)
        return x

    def factored(self, x: Counted, dims: Sequence[Dim]) -> Counted:
        """Returns a tensor in the factors of ``dims``, which its dimensions broadcast to."""
        for axis, dim in enumerate(dims):
            if extent(x.dims[axis]) != 1 and x.dims[axis] != dim:
                x = self.sizes.alike(x, axis, dim, spread=True)
        return x


def is_size(x: Size) -> TypeGuard[Size]:
    """Returns whether an argument is a size that the program leaves open."""
    return jax.export.is_symbolic_dim(x)


def counted(x: Operand) -> Counted:
    """Returns a tensor, of which all elements may count, as one of which some do."""
    if isinstance(x, Counted):
        return x
    return Counted(x, tuple((sizes.to_jax(n),) for n in x.shape))


def known(arguments: PyTree) -> Any:
    """Returns arguments that are no sizes of the result, but places in it, or shifts.

    Raises:
      Unserved: one depends on the sizes of the call, which are not those of the bucket.
    """
    if any(map(decided, filter(is_size, tree_leaves(arguments)))):
        raise Unserved("a place that depends on sizes")
    return arguments


def static(x: Counted, *axes: int) -> None:
    """Checks that all elements along dimensions count.

    Raises:
      Unserved: some may not.
    """
    if any(not is_static(x.dims[axis]) for axis in axes):
        raise Unserved("along a dimension of which not all elements count")
