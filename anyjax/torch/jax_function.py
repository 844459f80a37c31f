"""JAX functions as functions of torch tensors, with torch's gradients and transformations."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import torch

from anyjax import trees, warn_once
from anyjax.errors import ManyCompilations
from anyjax.torch.autograd.jax_program import Program, flat, refuse_tracers
from anyjax.torch.compat.module_calls import inlined
from anyjax.torch.core import current_trace, private
from anyjax.typing import PyTree, TorchOutput

CODE = (type, types.FunctionType, types.MethodType, types.ModuleType)
MANY = 64  # values of static arguments; then programs are dropped


def from_jax(function: Callable[..., object]) -> Callable[..., TorchOutput]:
    """Returns a JAX function as a function of torch tensors.

    Gradients are JAX's (``jax.vjp``), also those of gradients; complex ones are conjugate, as
    torch has them. ``torch.func``, ``torch.utils.checkpoint`` and graphs that torch records work;
    ``torch.compile`` leaves it as it is. It is compiled once for tensors of the same shapes and
    dtypes, and for other arguments of the same values. Contiguous tensors go in, and results come
    out, without a copy, with the dtypes that JAX gives them. In a model that ``anyjax.from_torch``
    converts it is the JAX function itself again.

    Args:
      function: takes and returns any pytrees of arrays. What is no tensor is static, and counts by
        its value: numbers, strings, arrays of numpy, objects by their attributes. What changes with
        each call is given as a tensor.

    Returns:
      A function that takes tensors in the place of arrays and returns tensors.

    Raises:
      Unsupported: when it is called with a tensor that has no JAX array, such as float64 while x64
        is off, or that is not on the CPU; or while JAX traces a function around it.

    Example:
      >>> import jax.numpy as jnp, torch
      >>> norm = anyjax.torch.from_jax(lambda x: jnp.sqrt((x**2).sum()))
      >>> x = torch.tensor([3.0, 4.0], requires_grad=True)
      >>> norm(x).backward()
      >>> x.grad
      tensor([0.6000, 0.8000])
    """
    programs: dict[Any, Program] = {}

    @functools.wraps(function)
    def called(*args: PyTree, **kwargs: PyTree) -> Any:
        if current_trace.active():
            return inlined(function, args, kwargs)
        leaves, structure = jax.tree.flatten(trees.register((args, kwargs)))
        refuse_tracers(leaves)
        places = tuple(i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor))
        tensors = [leaves[i] for i in places]
        constants = tuple((i, x) for i, x in enumerate(leaves) if i not in places)
        key = structure, places, tuple((i, content(x)) for i, x in constants)
        if key not in programs:
            if len(programs) == MANY:
                warn_once.warn(_many(function, constants), ManyCompilations)
                programs.clear()
            copies = {i: x.copy() if isinstance(x, np.ndarray) else x for i, x in constants}
            programs[key] = Program(flat(function, structure, places, copies))
        return programs[key](*tensors)

    return private.uncompiled(called)


def _many(function: Callable, constants: Sequence[tuple[int, PyTree]]) -> str:
    name = getattr(function, "__name__", "the function")
    numbers = [x for _, x in constants if isinstance(x, float)]
    text = f"such as {numbers[0]:g} " if numbers else ""
    return (
        f"{name} was compiled for {MANY} values of its static arguments, {text}and begins again: "
        "give as tensors what changes from call to call"
    )


def content(x: PyTree, around: tuple[int, ...] = ()) -> Any:
    """Returns what a program depends on of an argument that is no tensor, as a key.

    Arrays of numpy, and objects that are compared by identity, count by what is in them now.
    """
    if isinstance(x, np.ndarray):
        return trees.Constant(x.copy())
    if isinstance(x, jax.Array) or id(x) in around:
        return id(x)
    inside = partial(content, around=(*around, id(x)))
    if isinstance(x, dict):
        return type(x), tuple((k, inside(y)) for k, y in x.items())
    if isinstance(x, (list, tuple, set)):
        return type(x), tuple(map(inside, x))
    hashed: Any = type(x).__hash__
    if hashed in (object.__hash__, None) and hasattr(x, "__dict__") and not isinstance(x, CODE):
        return type(x), id(x), inside(vars(x))
    return (type(x), x) if hashed is not None else (type(x), id(x))
