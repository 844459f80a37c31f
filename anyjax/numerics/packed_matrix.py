"""Packed weights: matrices that a product reads without unpacking them.

A source of packed params unpacks each weight into an array of the program and registers its packed
form beside it. A lowering that multiplies by this very array asks for the packed form; the unpacked
array, which then nobody reads, is not computed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Protocol

import jax


class PackedMatrix(Protocol):
    """The packed form of a matrix; None where the matrix itself serves better."""

    def product(self, x: jax.Array) -> jax.Array | None:
        """Computes ``x @ matrix.T``, in the dtype of x."""

    def rows(self, indices: jax.Array) -> jax.Array:
        """Computes ``matrix[indices]``; indices are inside."""


_REGISTERED: ContextVar[dict[int, tuple[jax.Array, PackedMatrix]] | None] = ContextVar(
    "registered", default=None
)


@contextlib.contextmanager
def registering() -> Iterator[None]:
    """Forgets, on leaving, the packed forms that were registered inside."""
    token = _REGISTERED.set({**(_REGISTERED.get() or {})})  # a source may be around another one
    try:
        yield
    finally:
        _REGISTERED.reset(token)


def register(array: jax.Array, packed: PackedMatrix) -> None:
    """Registers the packed form of a value of a program; an array that is there needs none."""
    registered = _REGISTERED.get()
    if registered is not None and isinstance(array, jax.core.Tracer):
        registered[id(array)] = array, packed


def packed_form(array: Any) -> PackedMatrix | None:
    """Returns the packed form of this very array, None if there is none."""
    array, packed = (_REGISTERED.get() or {}).get(id(array), (None, None))
    return packed
