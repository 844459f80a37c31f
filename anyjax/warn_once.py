"""Warnings: at the user's line, and once for each line.

Python's own rule of once for each line forgets what was said whenever anything, such as an import,
changes the filters; and most of our warnings begin deep inside a trace of JAX's.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from anyjax import errors

# Packages whose lines no user can change, and what stands between them.
INSIDE = {"anyjax", "jax", "jaxlib", "flax", "torch", "transformers", "tensorflow", "keras"}
INSIDE |= {"contextlib", "functools", "concurrent", "importlib", "threading"}
_SHOWN: set[tuple] = set()


def warn(text: str, category: type[Warning], frame: FrameType | None = None) -> None:
    """A warning at a frame's line, by default the nearest one outside of libraries.

    A category of ``anyjax.errors`` adds the command that shows its page.
    Where the filters say nothing else ("always", "error"), a text comes once for each line.

    Example:
      >>> with warnings.catch_warnings(record=True) as said:
      ...     for _ in range(3):
      ...         warnings.simplefilter("default")  # Python's own rule would begin again
      ...         warn("a thing", UserWarning)
      >>> len(said)
      1
    """
    if category.__module__ == errors.__name__:
        text = f"{text}\n  see:   {errors.explain_command(category)}"
    frame = frame or _users(sys._getframe(1))
    module = frame.f_globals.get("__name__", "<unknown>")
    place = frame.f_code.co_filename, frame.f_lineno
    if _action(text, category, module, place[1]) in ("default", "module", "once"):
        if (shown := (category, text, *place)) in _SHOWN:
            return
        _SHOWN.add(shown)
    warnings.warn_explicit(text, category, *place, module=module, registry=None)


def _users(frame: FrameType) -> FrameType:
    """Returns the nearest frame outside of libraries, the outermost one if there is none."""
    while frame.f_globals.get("__name__", "").partition(".")[0] in INSIDE:
        if frame.f_back is None:
            break
        frame = frame.f_back
    return frame


def _action(text: str, category: type[Warning], module: str, line: int) -> str:
    """Returns what the filters do with a warning."""
    for action, message, kind, where, number in warnings.filters:
        if (
            (message is None or message.match(text))
            and issubclass(category, kind)
            and (where is None or where.match(module))
            and number in (0, line)
        ):
            return action
    return "default"
