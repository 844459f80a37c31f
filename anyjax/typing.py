"""Types for annotations: what functions of anyjax take, and what models return.

They are for type checkers: no call of anyjax makes or checks any of them.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import jax
import numpy as np

if TYPE_CHECKING:
    from typing import Self

    import torch
    from jaxtyping import PyTree as PyTree

    class Tree:
        """A tree with any attribute, key and item, which are trees again."""

        def __getattr__(self, name: str) -> Self: ...
        def __getitem__(self, key: object) -> Self: ...
        def __iter__(self) -> Iterator[Self]: ...
        def keys(self) -> KeysView[str]: ...
        def values(self) -> ValuesView[Self]: ...
        def items(self) -> ItemsView[str, Self]: ...
        def to_tuple(self) -> tuple[Self, ...]: ...

    class OfArrays(Tree, jax.Array): ...

    class OfTensors(Tree, torch.Tensor): ...

else:
    OfArrays = OfTensors = Protocol
    PyTree = Any  # for annotations alone, which nothing evaluates

__all__ = ["ArrayLike", "Output", "TorchOutput"]

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound="torch.nn.Module")
T = TypeVar("T")


class SupportsArray(Protocol):
    """An array of numpy, or a tensor of torch or TensorFlow."""

    def __array__(self) -> np.ndarray[Any, Any]: ...


ArrayLike: TypeAlias = jax.Array | SupportsArray


class Output(OfArrays):
    """The result of a model, which only its source knows: an array, or a tree of arrays.

    For type checkers it is a ``jax.Array`` that has any attribute, key and item, all of them an
    Output again. So ``model(x).sum()``, ``model(ids).logits``, ``model(x)["y"]`` and
    ``a, b = model(x)`` are right, and so is an Output where an array is asked for. At runtime it is
    the source's own class, with arrays of JAX.

    Example:
      >>> isinstance(3, Output)  # a checker at runtime is told nothing
      True
    """


class TorchOutput(OfTensors):
    """The result of torch code on JAX arrays: an Output with ``torch.Tensor`` for ``jax.Array``.

    Example:
      >>> isinstance(3, TorchOutput)  # a checker at runtime is told nothing
      True
    """


if not TYPE_CHECKING:
    Output, TorchOutput = map(runtime_checkable, (Output, TorchOutput))
