"""Functions of Python's own that ask for what only the program knows of a size.

``min(rows, 20)`` asks which one is smaller, ``len(x)`` and ``int(rows)`` have to give a number. The
module whose code asks gets others for the run: sizes in, sizes out, and all else is Python's.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import sys
from collections.abc import Callable, Iterator, Sized
from types import FrameType
from typing import Any

import torch

from anyjax.torch.core.current_trace import SERVED, Restart

# What asks a size, and the functions that may have called it.
ASKS = {"__bool__": ("min", "max"), "__index__": ("len",), "__int__": ("int",)}
TAKES_INT = {"isinstance", "issubclass", "map"}  # which the other ``int`` serves, too


class Needed(Restart):
    """Code of a module asks a builtin function for what only another one tells."""

    def __init__(self, module: dict, *names: str):
        self.module, self.names = module, names

    def remember(self, notes: dict) -> None:
        """Keeps the module and the names."""
        for name in self.names:
            notes.setdefault(Needed, {})[id(self.module), name] = self.module
        notes.setdefault(SERVED, {})[served] = True


@contextlib.contextmanager
def served(notes: dict) -> Iterator[None]:
    """Gives modules the other functions."""
    targets = [
        (module, name) for (_, name), module in notes[Needed].items() if name not in module
    ]  # once, if traces nest
    for module, name in targets:
        module[name] = OTHERS[name]
    try:
        yield
    finally:
        for module, name in targets:
            del module[name]


def needed() -> Needed | None:
    """Returns the functions of Python's that ask now for a number, or for a condition on sizes;
    None where the code itself does.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name not in ASKS:
        frame = frame.f_back
    if frame is None or frame.f_back is None:
        return None
    functions, frame = ASKS[frame.f_code.co_name], frame.f_back
    code, module = frame.f_code, frame.f_globals
    if "CALL" not in dis.opname[code.co_code[frame.f_lasti]]:
        return None
    names = [x for x in functions if x in code.co_names and replaceable(module, x)]
    return Needed(module, *names) if names else None


def replaceable(module: dict, name: str) -> bool:
    """Returns whether code of a module can have another function."""
    library = module.get("__name__", "").partition(".")[0]
    if library in ("torch", "anyjax") or name in module:
        return False
    return name != "int" or not is_a_value(_text(module))


def _text(module: dict) -> str:
    """Returns the source of a module, nothing where there is none."""
    loader = module.get("__loader__")
    try:
        return loader.get_source(module["__name__"]) or ""  # type: ignore[union-attr]
    except (AttributeError, ImportError, OSError, KeyError):
        return ""


def is_a_value(text: str) -> bool:
    """Returns whether code has ``int`` for a dtype or compares it, which another one would not be.

    Example:
      >>> is_a_value("x.to(int)"), is_a_value("isinstance(int(x), int)")
      (True, False)
    """
    values: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=func, args=args, keywords=keywords):
                if getattr(func, "id", "") not in TAKES_INT:
                    values += [*args, *(x.value for x in keywords)]
            case ast.Compare(left=left, comparators=others):
                values += [left, *others]
            case ast.Assign(value=value) | ast.Return(value=value):
                values.append(value)
            case ast.Dict(keys=keys, values=items):
                values += [*keys, *items]
    return any(isinstance(x, ast.Name) and x.id == "int" for x in values)


def _extreme(builtin: Callable[..., Any], of_sizes: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that serves sizes of the program as well."""

    @functools.wraps(builtin)
    def extreme(*args: Any, **options: Any) -> Any:
        items = args if len(args) != 1 else [*args[0]]
        if options or not any(isinstance(x, torch.SymInt) for x in items):
            return builtin(items, **options)
        return functools.reduce(of_sizes, items)

    return extreme


def length(x: Sized) -> int:
    """Returns how many elements there are; of a tensor the size of its first dimension."""
    return x.shape[0] if isinstance(x, torch.Tensor) and x.dim() else len(x)


OTHERS: dict[str, Any] = {
    "len": length,
    "min": _extreme(min, torch.sym_min),
    "max": _extreme(max, torch.sym_max),
}
