"""A copy of a module for traces: other modules, lists and dicts around the same tensors, so that
threads which use the module meanwhile never see what a trace puts into it.

What cannot be copied stays the module's own, is filled in place and put back: TorchScript, modules
that a function knows as globals, objects whose class needs more than a ``__dict__``.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from anyjax.torch.objects.contents import EMPTY, MANY, contents, items, slots
from anyjax.torch.objects.functions import Function, references, written
from anyjax.torch.objects.walk import alike

CONTAINERS = (list, dict, deque, OrderedDict, defaultdict)
LEADS = (types.FunctionType, types.MethodType, functools.partial, weakref.ref)
STEPPED = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
PLAIN = (str, bytes, int, float, complex, type(None), type, torch.dtype, torch.Tensor)
NUMERIC = {bool, int, float}
SIMPLE = {bool, str, int, float, type(None), torch.Tensor, torch.nn.Parameter}  # found faster
REBUILT: dict[type, Callable[[Copies, Any], Any]] = {}


class Copies:
    """The copies so far: ``of`` has for an ``id`` (the original, its copy).

    Objects are copied where they hold tensors or modules: others may be compared by identity.
    With ``settings``, those that hold nothing but plain values are copied, too, and the plain
    values that were met are listed.
    """

    def __init__(self, settings: bool = False):
        self.settings: list[Any] | None = [] if settings else None
        self.of: dict[int, tuple[Any, Any]] = {}
        self.cells: dict[int, types.CellType] = {}
        self.todo: list[Callable[[], None]] = []
        self.late: list[Callable[[], None]] = []  # once all modules are copied
        self.empty: set[int] = set()  # ids of what holds neither tensors nor modules

    def __call__(self, value: Any) -> Any:
        """Returns the copy, or the value itself where nothing in it is copied."""
        simple = type(value) in SIMPLE or isinstance(value, PLAIN)
        if self.settings is not None:
            is_setting = simple and not isinstance(value, torch.Tensor)
            self.settings.append(value if is_setting else type(value))
        if simple:
            return value
        if id(value) in self.of:
            return self.of[id(value)][1]
        if isinstance(value, torch.nn.Module):
            return self.module(value)
        rebuild = REBUILT.get(type(value))
        if rebuild is not None:
            return self.keep(value, rebuild(self, value))
        if isinstance(value, tuple):
            return self.items(value) if tuple.__len__(value) <= MANY else value  # e3nn's raises
        if isinstance(value, STEPPED):
            return self.object(value)
        if contents(value) is None:
            return value
        return self.container(value) if type(value) in CONTAINERS else self.object(value)

    def keep(self, old: Any, new: Any) -> Any:
        """Remembers a copy; the original with it, so that its id stays its own."""
        self.of[id(old)] = old, new
        return new

    def module(self, old: torch.nn.Module) -> torch.nn.Module:
        if isinstance(old, Function):
            for name in old.known_globally:
                for child in old._modules[name].modules():
                    self.keep(child, child)
            self.keep(old.captured, {})
            self.late.append(lambda: self.captured(self(old)))
        new = None if isinstance(old, torch.jit.ScriptModule) else blank(old)
        if new is None:
            return self.keep(old, old)
        self.todo.append(lambda: self.attributes(old, new))  # not here: chains may be long
        return self.keep(old, new)

    def attributes(self, old: Any, new: Any) -> None:
        """The attributes of an object, where it has them: not by way of its class."""
        kind: Any = type(old)
        for name in slots(kind):
            if hasattr(old, name):
                object.__setattr__(new, name, self(getattr(old, name)))
        if not hasattr(old, "__dict__"):
            return
        vars(new).update(counts(type(old)) | vars(old))
        for key, value in [*vars(new).items()]:
            if key == "training":
                continue  # a source's own, see TorchSource
            is_modules = isinstance(old, torch.nn.Module) and type(value) in CONTAINERS
            vars(new)[key] = (
                self.container(value) if is_modules and len(value) > MANY else self(value)
            )

    def container(self, old: Any) -> Any:
        """Returns a list or dict of the same kind."""
        new = self.keep(old, old.copy())
        for key, value in [*items(old)]:
            if self.settings is not None:
                self.settings.append(key if type(key) in SIMPLE else None)
            copied = self(value)
            if copied is not value:
                new[key] = copied
        if isinstance(old, dict) and any(isinstance(k, torch.nn.Module) for k in old):
            pairs = [(self(k), v) for k, v in new.items()]
            new.clear()
            new.update(pairs)
        return new

    def items(self, value: tuple) -> tuple:
        new = [self(x) for x in value]
        return value if all(x is y for x, y in zip(value, new)) else alike(value, new)

    def object(self, old: Any) -> Any:
        """Returns an object, or a list or dict of a class of somebody's own."""
        is_copied = isinstance(old, STEPPED) or self.holds(old) or self.is_setting(old)
        if isinstance(old, enum.Enum) or not is_copied:
            return old
        if isinstance(old, (list, dict, deque)):
            new = None
            with contextlib.suppress(Exception):  # whatever its class says to copies
                new = copy.copy(old)
            if type(new) is not type(old):
                return self.keep(old, old)
            self.keep(old, new)
            for key, value in [*items(old)]:
                new[key] = self(value)
            return new
        new = blank(old)
        if new is None:
            return self.keep(old, old)
        self.attributes(old, self.keep(old, new))
        return new

    def is_setting(self, value: Any) -> bool:
        """Returns whether this is to be copied as an object that only keeps plain values."""
        if self.settings is None or isinstance(value, (list, dict, deque)):
            return False
        return bool(contents(value))

    def holds(self, value: Any) -> bool:
        """Returns whether a tensor or a module can be reached from here."""
        seen: dict[int, Any] = {}
        reachable, rest = False, [value]
        while rest and not reachable:
            item = rest.pop()
            if isinstance(item, (torch.Tensor, torch.nn.Module)):
                reachable = True
            elif (
                not isinstance(item, PLAIN) and id(item) not in seen and id(item) not in self.empty
            ):
                seen[id(item)] = item
                holder = item if isinstance(item, tuple) else contents(item)
                if holder is not None and len(holder) <= MANY:
                    rest += [x for _, x in items(holder)]
        if not reachable:
            self.empty |= seen.keys()
        return reachable

    def cell(self, old: types.CellType) -> types.CellType:
        """Returns a variable around a function, itself if nothing in it is copied."""
        if id(old) in self.cells or old == EMPTY:
            return self.cells.get(id(old), old)
        value = old.cell_contents
        kinds = (torch.nn.Module, *CONTAINERS, *LEADS, *STEPPED)
        if not (isinstance(value, kinds) or self.holds(value)):
            return old
        new = self.cells[id(old)] = types.CellType(value)
        self.keep(new, old)  # alive, as long as its id is known

        def fill() -> None:
            loose = type(value) in CONTAINERS and id(value) not in self.of
            new.cell_contents = value if loose and not self.holds(value) else self(value)

        self.late.append(fill)
        return new

    def captured(self, new: Function) -> None:
        """Tells the copy of a Function what it refers to."""
        new.captured = {
            name: (holder, key)
            for name, holder, key in references(new.forward)
            if not isinstance(holder[key], torch.nn.Module)
        }


def counts(cls: type) -> dict[str, Any]:
    """Numbers in the class body that methods write to the object (``self.calls += 1``): there they
    are the object's own, and may be state.
    """
    numbers = {
        k: v for c in reversed(cls.__mro__) for k, v in vars(c).items() if type(v) in NUMERIC
    }
    return {k: numbers[k] for k in numbers.keys() & written(cls)} if numbers else {}


def blank(old: Any) -> Any:
    """Returns a new object of the same class; None where C code would have to make it."""
    try:
        return object.__new__(type(old))
    except TypeError:
        return None


def rebuilds(kind: type) -> Callable[[Callable], Callable]:
    """Decorator: how values of just this class are copied."""
    return lambda function: REBUILT.setdefault(kind, function)


@rebuilds(types.FunctionType)
def _function(copies: Copies, old: types.FunctionType) -> types.FunctionType:
    cells = [copies.cell(x) for x in old.__closure__ or ()]
    defaults, keywords = copies(old.__defaults__), old.__kwdefaults__ or {}
    named = {k: copies(x) for k, x in keywords.items()}
    same = all(x is y for x, y in zip(cells, old.__closure__ or ()))
    same &= all(named[k] is x for k, x in keywords.items())
    if same and defaults is old.__defaults__:
        return old
    new = types.FunctionType(old.__code__, old.__globals__, old.__name__, defaults, (*cells,))
    new.__kwdefaults__, new.__qualname__ = named or None, old.__qualname__
    new.__module__, new.__doc__ = old.__module__, old.__doc__
    vars(new).update(vars(old))
    copies.late.append(lambda: vars(new).update({k: copies(x) for k, x in vars(old).items()}))
    return new


@rebuilds(types.MethodType)
def _method(copies: Copies, old: types.MethodType) -> types.MethodType:
    owner, function = copies(old.__self__), copies(old.__func__)
    same = owner is old.__self__ and function is old.__func__
    return old if same else types.MethodType(function, owner)


@rebuilds(functools.partial)
def _partial(copies: Copies, old: functools.partial) -> functools.partial:
    args, keywords = copies(old.args), {k: copies(v) for k, v in old.keywords.items()}
    function = copies(old.func)
    same = all(keywords[k] is v for k, v in old.keywords.items())
    same = same and function is old.func and args is old.args
    return old if same else functools.partial(function, *args, **keywords)


@rebuilds(set)
def _set(copies: Copies, old: set) -> set:
    return {copies(x) if isinstance(x, torch.nn.Module) else x for x in old}


@rebuilds(weakref.ref)
def _reference(copies: Copies, old: weakref.ref) -> weakref.ref:
    target = copies(old())
    return old if target is old() else weakref.ref(target)


@rebuilds(RemovableHandle)
def _handle(copies: Copies, old: RemovableHandle) -> RemovableHandle:
    new = copy.copy(old)
    new.hooks_dict_ref = copies(old.hooks_dict_ref)
    return new


def shell(module: torch.nn.Module, settings: bool = False) -> tuple[torch.nn.Module, Copies]:
    """Returns (the copy, what was copied); with ``settings``, of objects such as a config, too."""
    copies = Copies(settings)
    new = copies(module)
    while tasks := copies.todo or copies.late:
        tasks.pop()()
    return new, copies
