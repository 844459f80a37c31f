"""Operators of tensors on JAX go the way that traces go, on tensors that may be written to."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import torch

from anyjax.errors import ForwardFailed
from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.call import call_of
from anyjax.torch.core.precision import precision_of
from anyjax.torch.core.pytrees import flatten
from anyjax.torch.eager import random_keys
from anyjax.torch.eager.factories import Factories
from anyjax.torch.eager.tensor import EagerTensor, from_torch
from anyjax.torch.lowering.run import Run
from anyjax.typing import PyTree

_THREAD = threading.local()  # the conditions of the program that JAX traces here


class EagerRun(Run):
    """One operator; random numbers come from ``seed``."""

    make = EagerTensor
    is_functional = False
    steps = True
    follows = staticmethod(lambda: True)  # what torch's autograd does not see, JAX's may

    def __init__(self, seed: PyTree = None):
        self.seed, self.precision = seed, precision_of("torch")
        self.asks, self.conditions = self.precision.asks, getattr(_THREAD, "conditions", None)

    def draw(self, op: object) -> jax.Array:
        return random_keys.as_key(self.seed)

    def above(self, function: Callable, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        """Returns a function of tensors; new ones are on JAX."""
        with Factories():
            return function(*args, **kwargs)

    below = above

    def python(self, op: object, function: Callable, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        """Runs the Python code of somebody's own operator."""
        return self.above(function, args, kwargs)

    def missing_op(self, op: private.OpOverload, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        """Makes a constant, such as torch.tensor.

        Raises:
          MissingOps: it is none.
        """
        if not call_of(op).random and not any(map(_is_tensor, flatten((args, kwargs))[0])):
            with private.DisableTorchDispatch():
                return from_torch(op(*args, **kwargs))
        diagnostics.refuse_kind(op)
        raise diagnostics.missing_ops({str(op): op}, {str(op): diagnostics.where()})

    @staticmethod
    def inside() -> contextlib.AbstractContextManager:
        """Makes the context of code that JAX traces on its own."""
        return _checking(None)


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


@contextlib.contextmanager
def collected() -> Iterator[list[jax.Array]]:
    """Collects the conditions that have to hold for the operators in here."""
    holds: list[jax.Array] = []
    with _checking(holds):
        yield holds


def require(holds: list[jax.Array]) -> None:
    """Takes the conditions of a program that was called; inside of another one they are its own.

    Raises:
      ForwardFailed: one does not hold.
    """
    around = getattr(_THREAD, "conditions", None)
    if any(isinstance(x, jax.core.Tracer) for x in holds):
        (around if around is not None else []).extend(holds)
    elif not all(holds):
        raise ForwardFailed(
            "a check of values in a compiled function fails",
            where=diagnostics.where(),
            why="torch raises an error for them, or has 64 bits where JAX has 32",
            do="call the function without jax.jit: the error says what is wrong",
        )


@contextlib.contextmanager
def _checking(new: list[jax.Array] | None) -> Iterator[None]:
    outer, _THREAD.conditions = getattr(_THREAD, "conditions", None), new
    try:
        yield
    finally:
        _THREAD.conditions = outer
