"""Functions as modules: the modules that a function refers to bring their weights along."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch


class Function(torch.nn.Module):
    """A function of tensors; the modules that it uses are its children. ``captured`` is what else
    it refers to: by name, what holds it and the key. Of the children, some are ``known_globally``.
    """

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self.captured: dict[str, tuple[Any, Any]] = {}
        self.known_globally: set[str] = set()
        taken_names = dict(vars(torch.nn.Module) | vars(self))
        for key, (holder, place) in captured(function):
            value, name = holder[place], key
            while taken_names.setdefault(name, value) is not value:  # another one of the same name
                name += "_"
            if isinstance(value, torch.nn.Module):
                self.add_module(name, value)
                if "__builtins__" in holder:
                    self.known_globally.add(name)
                continue
            self.captured[name] = holder, place
            if (submodules := Parts.of(value)) is not None and not hasattr(self, name):
                self.add_module(name, submodules)
        self.forward = function
        self.train(any(m.training for m in self.children()))

    def __reduce__(self) -> tuple[object, ...]:
        """Returns the function: where it is unpickled it knows modules of that process."""
        return Function, (self.forward,)

    def train(self, mode: bool = True):
        """Leaves the children in the modes that they have."""
        self.training = mode
        return self


def original(source: object) -> Any:
    """Returns the original of what ``torch.compile`` or ``torch.export`` returned."""
    export = sys.modules.get("torch.export")
    if export is not None and isinstance(source, export.ExportedProgram):
        return source.module()
    source = getattr(source, "_orig_mod", source)
    return getattr(source, "_torchdynamo_orig_callable", source)


def as_module(function: Callable) -> torch.nn.Module:
    """``function`` as a module."""
    return Function(function)


class Parts(torch.nn.Module):
    """The modules that an object keeps in its attributes, as a trainer does."""

    @classmethod
    def of(cls, value: object) -> Parts | None:
        """None where there are none."""
        library = type(value).__module__.partition(".")[0] == "torch"
        attributes = {} if library or isinstance(value, type) else getattr(value, "__dict__", {})
        modules = {k: x for k, x in attributes.items() if isinstance(x, torch.nn.Module)}
        if not modules or isinstance(value, types.ModuleType):
            return None
        holder = cls()
        for name, module in modules.items():
            holder.add_module(name, module)
        holder.training = any(m.training for m in modules.values())
        return holder

    def train(self, mode: bool = True):
        """Leaves them in the modes that they have."""
        return self


EMPTY = types.CellType()


class Cells:
    """The variables of the functions around a function."""

    def __init__(self, function: types.FunctionType):
        self.cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))

    def __contains__(self, name: str) -> bool:
        return name in self.cells

    def __getitem__(self, name: str) -> Any:
        return self.cells[name].cell_contents

    def __setitem__(self, name: str, value: object) -> None:
        self.cells[name].cell_contents = value


def captured(
    function: object, seen: frozenset = frozenset()
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """(name, (what holds it, key)) of what a function is bound to, closes over, reads as globals
    or holds as partial arguments, and of what functions of its own module refer to that it calls.
    """
    while isinstance(function, functools.partial):
        yield from _held({f"arg{i}": a for i, a in enumerate(function.args)})
        yield from _held(function.keywords)
        function = function.func
    if inspect.ismethod(function):
        yield from _held({"self": function.__self__})
        function = function.__func__
    if not inspect.isfunction(function) or function in seen:
        return
    seen, around = seen | {function}, Cells(function)
    for holder, names in (
        (around, [k for k, cell in around.cells.items() if cell != EMPTY]),
        (function.__globals__, sorted(_names(function.__code__) & function.__globals__.keys())),
    ):
        for name in names:
            yield name, (holder, name)
            if getattr(holder[name], "__module__", None) == function.__module__:
                yield from captured(holder[name], seen)


def _names(code: types.CodeType) -> set[str]:
    """Returns the names that a function reads, also in its comprehensions and inner functions."""
    inner = [_names(x) for x in code.co_consts if isinstance(x, types.CodeType)]
    return {*code.co_names}.union(*inner)


def _held(values: Mapping[str, object]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    return ((name, (values, name)) for name in values)
