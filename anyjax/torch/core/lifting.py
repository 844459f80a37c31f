"""Functional tensors around the tensors of a trace, and the arrays inside of both.

Torch code holds functional tensors, so that torch's functionalization sees its writes; operators
are lowered on what these hold: a ``JaxTensor``, or a constant, which is a tensor of torch's own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch

from anyjax.torch.core import current_trace, interop, private
from anyjax.torch.core.pytrees import map_tensors
from anyjax.torch.core.tensor import CountedTensor, JaxTensor
from anyjax.typing import PyTree

HUGE = 1 << 20  # elements: larger constants are kept out of the program where they can be
CONSTANTS: dict[int, tuple[torch.Tensor, jax.Array]] = {}  # of the trace that goes on


def lift(tree: PyTree) -> Any:
    """Tensors of the trace into functional tensors, which torch code may write to."""
    if isinstance(tree, torch.Tensor):
        if not private.is_functional(tree):
            tree = private.to_functional(tree)
            private.forbid_pointer(tree)  # C++ would read from address 0
        return tree
    return map_tensors(lift, tree)


def lowered(tree: PyTree) -> Any:
    """Functional tensors back into what they hold, pending writes applied."""
    return map_tensors(inner, tree)


def inner(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor inside a functional tensor, pending writes applied."""
    if not private.is_functional(tensor):
        return tensor
    with private.DisableTorchFunction():  # constants that torch makes again are none from outside
        private.sync(tensor)
    return private.from_functional(tensor)


def put(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Gives a functional tensor another value; views that are made of it later have it, too, also
    where torch makes them of memory that was written to.
    """
    with current_trace.trace().mode.picked.exchanging():
        private.replace(tensor, value)
    with private.DisableTorchFunction():
        if private.was_written(tensor):
            private.commit_update(tensor)
            private.sync(tensor)


def untransformed(tensor: torch.Tensor) -> torch.Tensor:
    """Returns what a tensor inside of ``torch.func`` stands for, all of a batch, rows first."""
    while private.level_of(tensor) != -1:
        axis, tensor = private.batch_axis(tensor), private.unwrapped(tensor)
        tensor = tensor if axis == -1 else tensor.movedim(axis, 0)
    return tensor


def value_in(tensor: torch.Tensor) -> jax.Array | torch.Tensor:
    """Returns the array inside a functional tensor; a constant as the tensor that it is."""
    value = inner(tensor)
    return value.array if isinstance(value, JaxTensor) else value


def array_of(tensor: torch.Tensor) -> jax.Array:
    """Returns the array inside a traced tensor; for a constant always the same one."""
    if isinstance(tensor, JaxTensor):
        return tensor.array
    tensor = inner(tensor)
    if isinstance(tensor, JaxTensor):
        return tensor.array
    if id(tensor) not in CONSTANTS:
        CONSTANTS[id(tensor)] = tensor, _constant(tensor)
    return CONSTANTS[id(tensor)][1]


def _constant(tensor: torch.Tensor) -> jax.Array:
    """Of one that is expanded and large, what it is expanded from; the program expands it."""
    if tensor.numel() <= HUGE or 0 not in tensor.stride():
        return interop.to_jax(tensor)
    with private.DisableTorchFunction():
        first = tensor[tuple(slice(None) if step else slice(1) for step in tensor.stride())]
    return jnp.broadcast_to(interop.to_jax(first), tensor.shape)


def is_traced(value: object) -> bool:
    """Returns whether this is a tensor whose values only the compiled program knows."""
    if not isinstance(value, torch.Tensor):
        return False
    inside = inner(value)
    if isinstance(inside, CountedTensor):
        return True
    return isinstance(inside, JaxTensor) and isinstance(inside.array, jax.core.Tracer)
