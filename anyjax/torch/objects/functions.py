"""Functions as modules: the modules that a function refers to bring their weights along."""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import torch

from anyjax.torch.objects.contents import LIBRARIES, Variables, contents, items

ATTRIBUTES = frozenset((dis.opmap["STORE_ATTR"],))
DEPTH = 4  # of lists and objects in each other


class Function(torch.nn.Module):
    """A function of tensors, or any object that can be called. The modules and parameters that it
    refers to are its children and parameters, also those that lists and objects hold.
    ``captured`` is what else it refers to: by name, what holds it and the key. Of the children,
    some are ``known_globally``.
    """

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self.captured: dict[str, tuple[Any, Any]] = {}
        self.known_globally: set[str] = set()
        for name, holder, key in references(function):
            value = holder[key]
            if isinstance(value, torch.nn.Module):
                self._modules[name] = value
                if "__builtins__" in holder:
                    self.known_globally.add(name)
                continue
            self.captured[name] = holder, key
            if is_weight(value):
                self._parameters[name] = value
            elif not is_followed(value, function) and (members := Members.of(value)) is not None:
                self._modules[name] = members
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


def is_weight(value: object) -> TypeGuard[torch.nn.Parameter]:
    """Returns whether this is a parameter that torch would train."""
    return isinstance(value, torch.nn.Parameter) and value.requires_grad


class Members(torch.nn.Module):
    """The modules and weights that a list or an object holds, as a trainer does."""

    @classmethod
    def of(cls, value: object, seen: set[int] | None = None, depth: int = DEPTH) -> Members | None:
        """None where there are none; each object is looked into once."""
        seen = set() if seen is None else seen
        holder = value if isinstance(value, tuple) else contents(value)
        if holder is None or id(value) in seen or not depth:
            return None
        seen.add(id(value))
        modules: dict[str, torch.nn.Module | None] = {}
        weights: dict[str, torch.nn.Parameter | None] = {}
        for key, x in items(holder):
            if isinstance(x, torch.nn.Module):
                modules[str(key)] = x
            elif is_weight(x):
                weights[str(key)] = x
            elif (inner := cls.of(x, seen, depth - 1)) is not None:
                modules[str(key)] = inner
        if not modules and not weights:
            return None
        members = cls()
        members._modules, members._parameters = modules, weights
        members.training = any(m.training for m in members.children())
        return members

    def train(self, mode: bool = True):
        return self


def references(function: object) -> Iterator[tuple[str, Any, Any]]:
    """(name, what holds it, key) of what a function is bound to, closes over, reads as globals or
    holds as arguments; another value of the same name gets a ``_``.
    """
    names = dict(vars(torch.nn.Module) | vars(torch.nn.Module()))
    names |= dict.fromkeys(("function", "name", "captured", "known_globally", "forward"))
    for key, (holder, place) in captured(function):
        value, name = holder[place], key.replace(".", "_")
        while names.setdefault(name, value) is not value:
            name += "_"
        yield name, holder, place


def captured(
    function: object, seen: frozenset = frozenset()
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """(name, (what holds it, key)) of what a function is bound to, closes over, reads as globals
    or holds as partial arguments, and of what functions of its own module refer to that it calls.
    """
    while isinstance(function, functools.partial):
        arguments = contents(function)
        yield from ((name, (arguments, name)) for name in arguments if name != "f")
        function = function.func
    if (
        not inspect.isroutine(function)
        and type(function).__module__.partition(".")[0] not in LIBRARIES
    ):
        function = getattr(function, "__call__", None)  # noqa: B004  bound to the object
    if inspect.ismethod(function):
        yield "self", ({"self": function.__self__}, "self")
        function = function.__func__
    if not inspect.isfunction(function) or function in seen:
        return
    seen, around = seen | {function}, Variables(function)
    for holder, names in (
        (around, [*around]),
        (function.__globals__, sorted(names_of(function.__code__) & function.__globals__.keys())),
    ):
        for name in names:
            yield name, (holder, name)
            if is_followed(holder[name], function):
                yield from captured(holder[name], seen)


def is_followed(value: object, function: object) -> bool:
    """Returns whether what a value refers to counts as the function's own references."""
    is_python = inspect.isfunction(value) or inspect.ismethod(value)
    return is_python and value.__module__ == getattr(function, "__module__", None)


def names_of(code: types.CodeType) -> set[str]:
    """Returns the names that a function reads, also in its comprehensions and inner functions."""
    inner = [names_of(x) for x in code.co_consts if isinstance(x, types.CodeType)]
    return {*code.co_names}.union(*inner)


@functools.cache
def reached(cls: type) -> set[str]:
    """Returns the names that forward reads, and those of what it calls."""
    names: set[str] = set()
    pending, seen = [getattr(cls, "forward", None)], set()
    while pending:
        function = pending.pop()
        if not inspect.isfunction(function) or function in seen:
            continue
        seen.add(function)
        names |= (new := names_of(function.__code__))
        pending += [getattr(cls, name, None) for name in new]
        around = (holder[key] for _, (holder, key) in captured(function))
        pending += [value for value in around if is_followed(value, function)]
    return names


@functools.cache
def written(cls: type) -> set[str]:
    """Returns the attributes that code of this class writes to, of whatever object; not a
    library's.
    """
    classes = [c for c in cls.__mro__ if c.__module__.partition(".")[0] not in LIBRARIES]
    functions = [f for c in classes for f in vars(c).values() if isinstance(f, types.FunctionType)]
    return {name for f in functions for name in stored(f.__code__, ATTRIBUTES)}


def stored(code: types.CodeType, instructions: frozenset[int]) -> Iterator[str]:
    """Yields the names that code stores by these instructions, also in inner functions."""
    if not instructions.isdisjoint(code.co_code[::2]):  # to read all takes a hundred times as long
        yield from (i.argval for i in dis.get_instructions(code) if i.opcode in instructions)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from stored(inner, instructions)
