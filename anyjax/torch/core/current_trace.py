"""The trace that goes on in this thread; other threads have none, or their own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

_THREAD = threading.local()


def trace() -> Any:
    """Returns the trace, None where none goes on."""
    return getattr(_THREAD, "trace", None)


def active() -> bool:
    """Returns whether this thread is tracing."""
    return trace() is not None


@contextlib.contextmanager
def entered(new: object) -> Iterator[None]:
    """``new`` is this thread's trace for a while."""
    outer, _THREAD.trace = getattr(_THREAD, "trace", None), new
    try:
        yield
    finally:
        _THREAD.trace = outer


class Active:
    """A flag of torch's own, which all threads see, that is true in a thread that traces."""

    def __bool__(self) -> bool:
        return active()

    def __or__(self, other: Any) -> Any:
        return active() | other

    def __and__(self, other: Any) -> Any:
        return active() & other

    def __eq__(self, other: object) -> bool:
        return active() == other

    __ror__, __rand__ = __or__, __and__
    __hash__ = object.__hash__
