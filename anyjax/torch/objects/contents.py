"""The contents of Python's objects, each as a dict or list: attributes, slots, items, variables and
defaults of functions, arguments of partials.
"""

from __future__ import annotations

import functools
import pickle
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

NUMBERS = (int, float)  # bool is one
MANY = 4096  # what is longer is data, such as a vocabulary
PLAIN_OBJECTS = {"argparse", "collections", "types"}  # whose classes hold what users give them
LIBRARIES = {*sys.stdlib_module_names, "torch", "numpy", "jax", "jaxlib", "anyjax"}
LIBRARIES -= {"__main__", *PLAIN_OBJECTS}
EMPTY = types.CellType()


class View(dict[str, Any]):
    """The contents of an object that is no dict or list, by name: to set one is to set its."""

    def __init__(self, get: Callable[[], Mapping[str, Any]], put: Callable[[str, Any], None]):
        super().__init__(get())
        self.get_all, self.put = get, put

    def __getitem__(self, name: str) -> Any:
        return self.get_all()[name]  # code may have written to it since

    def __setitem__(self, name: str, value: object) -> None:
        self.put(name, value)
        super().__setitem__(name, value)

    def read(self) -> None:
        super().clear()
        super().update(self.get_all())


class Variables(View):
    """The variables of the functions around a function, and its defaults."""

    def __init__(self, function: types.FunctionType):
        self.function = function
        code, defaults = function.__code__, function.__defaults__ or ()
        self.cells = dict(zip(code.co_freevars, function.__closure__ or ()))
        self.names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        super().__init__(self._get, self._put)

    def _get(self) -> dict[str, Any]:
        cells = {k: x.cell_contents for k, x in self.cells.items() if x != EMPTY}
        return {**cells, **self._defaults(), **(self.function.__kwdefaults__ or {})}

    def _defaults(self) -> dict[str, Any]:
        return dict(zip(self.names, self.function.__defaults__ or ()))

    def _put(self, name: str, value: object) -> None:
        if name in self.cells:
            self.cells[name].cell_contents = value
        elif name in self.names:
            self.function.__defaults__ = (*(self._defaults() | {name: value}).values(),)
        else:
            (self.function.__kwdefaults__ or {})[name] = value


Holder = dict[Any, Any] | list[Any] | deque[Any]


def contents(value: object) -> Any:
    """Returns what ``value`` holds as a dict or list, which can be written to; None where nothing
    is looked for: libraries' objects, classes, what is too long.

    Example:
      >>> contents(types.SimpleNamespace(a=1)), contents(functools.partial(max, 2))
      ({'a': 1}, {'arg0': 2})
    """
    if isinstance(value, torch.nn.Module):
        return vars(value)
    if isinstance(value, (list, deque, dict)):
        return value if len(value) <= MANY else None
    if (view := VIEWS.get(type(value))) is not None:
        return view(value)
    if isinstance(value, type) or type(value).__module__.partition(".")[0] in LIBRARIES:
        return None
    kind: Any = type(value)
    if names := slots(kind):
        return View(functools.partial(_attributes, value, names), functools.partial(_set, value))
    return getattr(value, "__dict__", None)


def items(holder: Holder | tuple) -> Any:
    """(key, value) of a list or dict."""
    return holder.items() if isinstance(holder, dict) else enumerate(holder)


def snapshot(holder: Holder | np.ndarray) -> Any:
    """Returns the content of what holds something, for ``restore``: classes of dicts and lists may
    have a ``copy()`` of their own, which makes one of theirs.
    """
    if isinstance(holder, np.ndarray):
        return holder.copy()
    return dict(holder) if isinstance(holder, dict) else [*holder]


def restore(holder: Holder | np.ndarray, content: Any) -> None:
    """Gives what holds something its former content."""
    if isinstance(holder, np.ndarray):
        holder[...] = content
        return
    if isinstance(holder, View):
        holder.read()
        for name, value in content.items():
            if holder.get(name) is not value:
                holder[name] = value
        return
    pairs = zip(items(holder), items(content))
    if len(holder) == len(content) and all(i == k and a is b for (i, a), (k, b) in pairs):
        return
    holder.clear()
    holder.update(content) if isinstance(holder, dict) else holder.extend(content)


@functools.cache
def slots(kind: type) -> tuple[str, ...]:
    """Returns the attributes of a class that have no ``__dict__``."""
    names = [vars(x).get("__slots__", ()) for x in kind.__mro__]
    flat = [x for name in names for x in ([name] if isinstance(name, str) else name)]
    return tuple(x for x in flat if x not in ("__dict__", "__weakref__"))


def _attributes(value: object, names: Iterable[str]) -> dict[str, Any]:
    in_slots = {k: getattr(value, k) for k in names if hasattr(value, k)}
    return in_slots | getattr(value, "__dict__", {})


def _set(value: object, name: str, new: object) -> None:
    object.__setattr__(value, name, new)  # frozen dataclasses, too


def _method(method: types.MethodType) -> View:
    def put(name: str, value: object) -> None:
        raise TypeError(f"a method's {name} cannot be exchanged")

    return View(lambda: {"self": method.__self__, "function": method.__func__}, put)


def _partial(partial: functools.partial) -> View:
    def get() -> dict[str, Any]:
        arguments = {f"arg{i}": x for i, x in enumerate(partial.args)}
        inner = {} if isinstance(partial.func, types.BuiltinFunctionType) else {"f": partial.func}
        return arguments | partial.keywords | inner

    def put(name: str, value: object) -> None:
        new = get() | {name: value}
        args = tuple(new[f"arg{i}"] for i in range(len(partial.args)))
        keywords = {k: new[k] for k in partial.keywords}
        state: Any = partial
        state.__setstate__((new.get("f", partial.func), args, keywords, vars(partial)))

    return View(get, put)


def _random(get: Callable[[Any], Any], put: Callable[[Any, Any], None]) -> Callable[[Any], View]:
    """Of a generator of random numbers, the state in bytes: nobody looks for numbers in it."""
    return lambda generator: View(
        lambda: {"state": pickle.dumps(get(generator))},
        lambda _, state: put(generator, pickle.loads(state)),
    )


class Running(View):
    """The place of a generator in Python, which cannot be changed."""

    def __init__(self, generator: types.GeneratorType):
        frame = generator.gi_frame  # None at its end
        place = lambda: frame and (frame.f_lasti, {k: id(x) for k, x in frame.f_locals.items()})
        super().__init__(lambda: {"place": str(place())}, _ignore)


def _ignore(name: str, value: object) -> None:
    """Puts nothing."""


VIEWS: dict[type, Callable[[Any], View]] = {
    types.FunctionType: Variables,
    types.MethodType: _method,
    functools.partial: _partial,
    types.GeneratorType: Running,
    random.Random: _random(random.Random.getstate, random.Random.setstate),
    np.random.RandomState: _random(
        np.random.RandomState.get_state, np.random.RandomState.set_state
    ),
    np.random.Generator: _random(
        lambda generator: generator.bit_generator.state,
        lambda generator, state: setattr(generator.bit_generator, "state", state),
    ),
}
