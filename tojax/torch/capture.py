"""Functions as modules: the modules that a function refers to bring their weights along."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch


class Function(torch.nn.Module):
    """A function of tensors; the modules that it uses are its children."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__name__)
        for name, module in modules_of(function).items():
            self.add_module(name, module)
        self.forward = function
        self.train(any(m.training for m in self.children()))

    def train(self, mode: bool = True):
        """Leaves the children in the modes that they have."""
        self.training = mode
        return self


def original(source: Any) -> Any:
    """The module or function that ``torch.compile`` or ``torch.export`` was given or made."""
    export = sys.modules.get("torch.export")
    if export is not None and isinstance(source, export.ExportedProgram):
        return source.module()
    source = getattr(source, "_orig_mod", source)
    return getattr(source, "_torchdynamo_orig_callable", source)


def as_module(function: Callable) -> torch.nn.Module:
    """``function`` as a module."""
    return Function(function)


def modules_of(function: Callable) -> dict[str, torch.nn.Module]:
    """The modules that a function is bound to, closes over, reads as globals or holds as partial
    arguments.
    """
    found: dict[str, object] = {}
    while isinstance(function, functools.partial):
        found |= {f"arg{i}": a for i, a in enumerate(function.args)} | dict(function.keywords)
        function = function.func
    if inspect.ismethod(function):
        found["self"] = function.__self__
        function = function.__func__
    if inspect.isfunction(function):
        seen = inspect.getclosurevars(function)
        found |= dict(seen.nonlocals) | dict(seen.globals)
    return {k: v for k, v in found.items() if isinstance(v, torch.nn.Module)}
