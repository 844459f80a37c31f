"""Imports of the command line, ``package.module:Class``, and inputs by their shapes."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyjax.errors import ForwardFailed, WrongArguments

if TYPE_CHECKING:
    import torch


def is_path(source: str) -> bool:
    """Returns True for ``package.module:Class``."""
    return ":" in source and not Path(source).exists()


def member(source: str) -> Any:
    """Imports what ``package.module:name`` names.

    Raises:
      WrongArguments: there is no such module, or no such name in it.
    """
    home, _, name = source.partition(":")
    sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(home.removesuffix(".py")), name)
    except (ImportError, AttributeError) as error:
        raise WrongArguments(
            f"there is no {source}",
            why=str(error),
            do="give package.module:Class, importable from this folder",
        ) from error


def module_of(source: str) -> torch.nn.Module:
    """Returns the torch module that ``package.module:name`` is, or makes."""
    import torch

    imported = member(source)
    return imported if isinstance(imported, torch.nn.Module) else _make_module(imported, source)


def module_and_inputs(source: str, inputs: list[str]) -> tuple[torch.nn.Module, tuple, dict]:
    """Returns the module of ``package.module:Class``, and random inputs.

    Raises:
      WrongArguments: there are no inputs.
      ForwardFailed: the module cannot be called with them.
    """
    import torch

    module = module_of(source)
    if not inputs:
        raise WrongArguments(
            "an imported module needs example inputs",
            why="its operators are seen by calling it",
            do="give their shapes: --input 2x3x32x32, or --input 2x16:int for token ids",
        )
    args = tuple(draw(x) for x in inputs)
    try:
        with torch.no_grad():
            copy.deepcopy(module).eval()(*args)
    except Exception as error:  # whatever its own code raises
        message = (str(error).strip() or "no message").splitlines()[0]
        raise ForwardFailed(
            f"{source} cannot be called with these inputs",
            where=f"--input {' --input '.join(inputs)}",
            why=f"{type(error).__name__}: {message}",
            do="give the shapes that its forward takes, with :int for token ids",
        ) from error
    return module, args, {}


def _make_module(make: Any, source: str) -> Any:
    """Calls a class or a function without arguments, and returns its module.

    Raises:
      WrongArguments: it needs some, or gives no module.
    """
    import torch

    try:
        with contextlib.suppress(ValueError):  # it has no signature
            inspect.signature(make).bind()
    except TypeError as error:
        raise WrongArguments(
            f"{source} cannot be made without arguments",
            where=source,
            why=str(error),
            do="give an instance: write net = Class(...) in a file.py and say file:net",
        ) from None
    if isinstance(module := make(), torch.nn.Module):
        return module
    raise WrongArguments(
        f"{source} gives a {type(module).__name__}, and no torch module",
        where=source,
        why="Flax source is written of torch modules",
        do="name a subclass of torch.nn.Module, an instance, or a function that makes one",
    )


def draw(spec: str) -> Any:
    """Draws an input: ``2x16:int`` gives integers below 10 of that shape."""
    import torch

    sizes, _, kind = spec.partition(":")
    try:
        shape = [int(x) for x in sizes.split("x")]
    except ValueError as error:
        raise WrongArguments(
            f"--input {spec}", why="a shape is numbers with x between", do="write 2x3x32x32"
        ) from error
    return torch.randint(0, 10, shape) if kind == "int" else torch.randn(shape)
