"""The trace that goes on in this thread, and its next run; others have none, or their own."""

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
    return getattr(_THREAD, "trace", None) is not None


@contextlib.contextmanager
def entered(new: object) -> Iterator[None]:
    """``new`` is this thread's trace for a while."""
    outer, _THREAD.trace = getattr(_THREAD, "trace", None), new
    try:
        yield
    finally:
        _THREAD.trace = outer


class Restart(BaseException):
    """The run of a trace ends, as code asks for what only the next one can give it."""

    def remember(self, notes: dict) -> None:
        """Keeps it for all calls from now on."""
        raise NotImplementedError


# Among notes: contexts of further runs, and a function that says whether they can do without.
SERVED, GIVES_UP = "served", "gives up"
NOTHING = contextlib.nullcontext()


def restarted(notes: dict) -> contextlib.AbstractContextManager:
    """Returns the context in which code has what earlier runs asked for."""
    if SERVED not in notes:
        return NOTHING
    stack = contextlib.ExitStack()
    for serve in notes[SERVED]:
        stack.enter_context(serve(notes))
    return stack


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
