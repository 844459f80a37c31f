"""Which node and which line of Python an error is about."""

from __future__ import annotations

from typing import Any

from tojax.errors import TojaxError


def locate(error: Exception, node: Any, stack: list[str]) -> None:
    """Adds the innermost node that it happened in to an error."""
    if getattr(error, "tensorflow_node", None) is not None:
        return
    error.tensorflow_node = node.name  # type: ignore[attr-defined]
    inside = "".join(f" in {name}" for name in reversed(stack))
    where = f"node {node.name!r} ({node.op}){inside}"
    if isinstance(error, TojaxError) and not error.where:
        TojaxError.__init__(error, error.what, where=where, why=error.why, do=error.do)
    elif not isinstance(error, TojaxError):
        error.add_note(f"in {where} of the TensorFlow graph")
