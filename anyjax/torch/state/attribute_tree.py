"""Lists, tuples, dicts and objects as trees of names: ``statistics.history.3``."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from anyjax.torch.state.closures import Function

NUMBERS = (int, float)  # bool is one
Holder = dict[Any, Any] | list[Any] | deque[Any]
MANY = 4096  # what is longer is data, such as a vocabulary
LIBRARIES = {*sys.stdlib_module_names, "torch", "numpy", "jax", "jaxlib"} - {"__main__"}


@dataclass
class Walk:
    """Goes through everything once, but not into the objects of libraries.

    ``leaf`` gives for (name, value) what shall be in the place of a tensor, a number or None;
    ``visit`` is called with (name, list or dict, loose) before. Variables, lists and dicts around a
    function are ``loose``: their numbers are left alone.
    """

    leaf: Callable[[str, Any], Any]
    visit: Callable[[str, Any, bool], None]
    seen: set[int] = field(default_factory=set)

    def __call__(self, name: str, value: object, loose: bool = False) -> Any:
        """Returns what takes the place of the value."""
        if isinstance(value, NUMBERS):
            return value if loose else self.leaf(name, value)
        if value is None or isinstance(value, torch.Tensor):
            return self.leaf(name, value)
        if isinstance(value, tuple) and tuple.__len__(value) <= MANY:  # e3nn's raises
            new = [self(f"{name}.{i}", x, loose) for i, x in enumerate(value)]
            if all(x is y for x, y in zip(value, new)):
                return value
            return alike(value, new)
        holder = inside(value)
        if holder is not None and id(value) not in self.seen:
            self.seen.add(id(value))
            loose = loose and holder is value
            self.visit(name, holder, loose)
            for key, x in [*items(holder)]:
                new = self(f"{name}.{key}", x, loose)
                if new is not x:
                    holder[key] = new
        return value


def alike(value: tuple, items: list) -> tuple:
    """A tuple of these items and of the class of ``value``, whose ``__new__`` may take others."""
    new = tuple.__new__(type(value), items)
    new.__dict__.update(vars(value)) if hasattr(value, "__dict__") else None
    return new


def inside(value: object) -> Any:
    """Returns the contents of ``value`` as a list or dict; None where nothing is looked for."""
    if isinstance(value, torch.nn.Module):
        return vars(value)
    if isinstance(value, (list, deque, dict)):
        return value if len(value) <= MANY else None
    library = type(value).__module__.partition(".")[0] in LIBRARIES
    return None if library or isinstance(value, type) else getattr(value, "__dict__", None)


def items(holder: Holder | tuple) -> Any:
    """(key, value) of a list or dict."""
    return holder.items() if isinstance(holder, dict) else enumerate(holder)


def tree(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Dicts in dicts by the parts of the names.

    Example:
      >>> tree({"a.b": 1, "a.0.c": 2, "d": 3})
      {'a': {'b': 1, '0': {'c': 2}}, 'd': 3}
    """
    root: dict[str, Any] = {}
    for name, tensor in tensors.items():
        *path, last = name.split(".")
        branch = root
        for key in path:
            branch = branch.setdefault(key, {})
        branch[last] = tensor
    return root


def grown(value: object, branches: object) -> Any:
    """``value`` with the tensors of such a tree in it: new tuples and dicts where there is nothing
    that could hold them.

    Example:
      >>> grown([], {"0": 1, "1": {"0": 2, "1": 3}}), grown({"a": None}, {"a": {"b": 4}})
      ([1, (2, 3)], {'a': {'b': 4}})
    """
    if not isinstance(branches, dict):
        return branches
    holder = None if value is None or isinstance(value, (tuple, *NUMBERS)) else inside(value)
    if holder is None:
        children = {str(i): x for i, x in enumerate(value if isinstance(value, tuple) else ())}
        children |= {key: grown(None, branch) for key, branch in branches.items()}
        numbered = [str(i) for i in range(len(children))]
        return tuple(map(children.get, numbered)) if {*numbered} == {*children} else children
    places = {str(key): (holder, key) for key, _ in items(holder)}
    if isinstance(value, torch.nn.Module):
        places |= {key: (value._modules, key) for key, _ in value._modules.items()}
    if isinstance(value, Function):
        places |= value.captured
    for name, branch in sorted(branches.items(), key=lambda x: (len(x[0]), x[0])):
        if name in places:
            container, key = places[name]
            child = grown(container[key], branch)
            if child is not container[key]:
                container[key] = child
        elif isinstance(holder, dict):
            holder[name] = grown(None, branch)
        else:
            holder.append(grown(None, branch))
    return value


def restore(holder: Holder, before: Holder) -> None:
    """Gives a list or dict its former content."""
    pairs = zip(items(holder), items(before))
    if len(holder) == len(before) and all(i == k and a is b for (i, a), (k, b) in pairs):
        return
    holder.clear()
    holder.update(before) if isinstance(holder, dict) else holder.extend(before)
