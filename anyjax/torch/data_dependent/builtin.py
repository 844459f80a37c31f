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
ASKS = {"__bool__": ("min", "max"), "__index__": ("len", "float"), "__int__": ("int",)}
TAKES = {"isinstance", "issubclass", "map"}  # the others serve these, too
GENERIC = {"List", "Tuple", "Dict", "Optional", "Union", "list", "tuple", "dict"}


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
    while frame is not None and frame.f_back is not None and frame.f_back.f_code.co_name in ASKS:
        frame = frame.f_back  # a float's own int(), by that of a size
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
    return name not in ("int", "float") or not is_a_value(_text(module), name)


def _text(module: dict) -> str:
    """Returns the source of a module, nothing where there is none."""
    loader = module.get("__loader__")
    try:
        return loader.get_source(module["__name__"]) or ""  # type: ignore[union-attr]
    except (AttributeError, ImportError, OSError, KeyError):
        return ""


def is_a_value(text: str, name: str = "int") -> bool:
    """Returns whether functions have ``int`` for more than to call it, or to ask for its objects,
    as for a dtype or the type of something, which another one would not be.

    Example:
      >>> is_a_value("def f(x): return x.to(int)"), is_a_value("def f(x: int): return int(x)")
      (True, False)
    """
    tree = ast.parse(text)
    harmless: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name() as func, args=args):
                harmless.add(func)
                for argument in args if func.id in TAKES else ():
                    harmless |= {*ast.walk(argument)}
            case ast.Subscript(value=ast.Name(id=kind), slice=items) if kind in GENERIC:
                harmless |= {*ast.walk(items)}
            case (
                ast.arg(annotation=kind)
                | ast.AnnAssign(annotation=kind)
                | ast.FunctionDef(returns=kind)
            ) if kind:
                harmless |= {*ast.walk(kind)}
    functions = (x for x in ast.walk(tree) if isinstance(x, (ast.FunctionDef, ast.Lambda)))
    bodies = (y for x in functions for y in (x.body if isinstance(x.body, list) else [x.body]))
    nodes = (node for body in bodies for node in ast.walk(body))
    return any(isinstance(x, ast.Name) and x.id == name and x not in harmless for x in nodes)


def _extreme(builtin: Callable[..., Any], of_sizes: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that serves sizes of the program as well."""

    @functools.wraps(builtin)
    def extreme(*args: Any, **options: Any) -> Any:
        items = args if len(args) != 1 else [*args[0]]
        integers = all(isinstance(x, (int, torch.SymInt)) for x in items)
        if options or not integers or not any(isinstance(x, torch.SymInt) for x in items):
            return builtin(items, **options)
        return functools.reduce(of_sizes, items)

    return extreme


class _FloatKind(type):
    def __call__(cls, *args: Any) -> Any:
        is_size = len(args) == 1 and isinstance(args[0], (torch.SymInt, torch.SymFloat))
        return torch.sym_float(args[0]) if is_size else float(*args)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, (float, torch.SymFloat))

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, float)


class Float(float, metaclass=_FloatKind):
    """Gives numbers of a program for its sizes."""


def length(x: Sized) -> int:
    """Returns how many elements there are; of a tensor the size of its first dimension."""
    return x.shape[0] if isinstance(x, torch.Tensor) and x.dim() else len(x)


OTHERS: dict[str, Any] = {
    "float": Float,
    "len": length,
    "min": _extreme(min, torch.sym_min),
    "max": _extreme(max, torch.sym_max),
}
