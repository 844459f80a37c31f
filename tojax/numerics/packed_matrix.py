"""Arrays that are computed from smaller ones, and know a shorter way to what is made of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Protocol

import jax


class Shortcut(Protocol):
    """Products of a matrix without unpacking it; None where the matrix itself serves better."""

    def product(self, x: jax.Array) -> jax.Array | None:
        """``x @ matrix.T``, in the dtype of x."""

    def rows(self, indices: jax.Array) -> jax.Array:
        """``matrix[indices]``; indices are inside."""


_known: ContextVar[dict[int, tuple[jax.Array, Shortcut]] | None] = ContextVar("known", default=None)


@contextlib.contextmanager
def noting() -> Iterator[None]:
    """While this lasts, shortcuts are remembered."""
    token = _known.set({**(_known.get() or {})})  # sources around others note their own
    try:
        yield
    finally:
        _known.reset(token)


def note(array: jax.Array, shortcut: Shortcut) -> None:
    """Remembers a shortcut of a value of a program; an array that is there needs none."""
    known = _known.get()
    if known is not None and isinstance(array, jax.core.Tracer):
        known[id(array)] = array, shortcut


def of(array: Any) -> Shortcut | None:
    """The shortcut of this very array."""
    array, shortcut = (_known.get() or {}).get(id(array), (None, None))
    return shortcut
