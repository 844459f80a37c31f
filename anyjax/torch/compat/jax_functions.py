"""JAX's functions on tensors of a trace: ``jax.numpy``, ``jax.debug.print``, and Models."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import torch

from anyjax import trees
from anyjax.errors import AnyjaxError, Unsupported
from anyjax.torch.compat.module_calls import inlined
from anyjax.torch.compat.patches import replaces
from anyjax.torch.core import current_trace, diagnostics, interop, private
from anyjax.torch.core.lifting import array_of
from anyjax.typing import PyTree

FOR_TENSOR = re.compile(r"must be (a )?Tensor.*, not (\w*Tracer|ArrayImpl)")
AS_ARRAY = "__jax_array__"  # JAX calls it on arguments that are no arrays


@contextlib.contextmanager
def accepted() -> Iterator[None]:
    """Lets JAX's functions take tensors for a while."""
    if AS_ARRAY in vars(torch.Tensor):  # in a trace around this one
        yield
        return
    setattr(torch.Tensor, AS_ARRAY, _as_array)
    try:
        yield
    finally:
        delattr(torch.Tensor, AS_ARRAY)


def _as_array(tensor: torch.Tensor) -> jax.Array:
    return array_of(tensor) if current_trace.active() else interop.to_jax(tensor)


@replaces(private.DEBUG_PRINT, private.DEBUG_CALLBACK)
def debug(original: Callable, *args: PyTree, **kwargs: PyTree) -> None:
    """Prints numbers, not wrappers: when the program runs."""
    array = lambda x: array_of(x) if isinstance(x, torch.Tensor) else x
    is_tensor = lambda x: isinstance(x, torch.Tensor)
    args, kwargs = jax.tree.map(array, trees.register((args, kwargs)), is_leaf=is_tensor)
    original(*args, **kwargs)


@replaces(private.CALL_MODEL, private.APPLY_MODEL)
def model(original: Callable, *args: PyTree, **kwargs: PyTree) -> Any:
    """Computes a Model of any framework as a part of the program, where it is given tensors."""
    leaves = jax.tree.leaves(trees.register((args, kwargs)))
    if not any(isinstance(x, torch.Tensor) for x in leaves):
        return original(*args, **kwargs)
    return inlined(original, args, kwargs)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Explains the errors of tensors in JAX's functions, and of arrays in torch's.

    Raises:
      Unsupported: there is such an error.
    """
    try:
        yield
    except ValueError as error:
        if AS_ARRAY not in str(error):
            raise
        raise Unsupported(
            "a function of JAX is called with a torch tensor",
            where=diagnostics.where(error),
            why="functions that JAX jits take arrays alone",
            do="wrap it: anyjax.torch.from_jax(jnp.sin)(x); or convert: jnp.sin(jnp.asarray(x))",
        ) from error
    except TypeError as error:
        if isinstance(error, AnyjaxError) or not FOR_TENSOR.search(str(error)):
            raise
        raise Unsupported(
            "a torch function is called with an array of JAX",
            where=diagnostics.where(error),
            why=str(error).splitlines()[0],
            do="wrap what made it: anyjax.torch.from_jax(function)(x) returns tensors",
        ) from error
