"""Lists, tuples, dicts and objects as trees of names: ``statistics.history.3``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from anyjax.torch.objects.contents import MANY, NUMBERS, View, contents, items, restore, snapshot
from anyjax.torch.objects.iterators import copied, is_iterator
from anyjax.trees import is_array

ARRAYS: set[type] = {np.ndarray, *NUMBERS, type(None), str}  # arguments that hold nothing


@dataclass
class Walk:
    """Goes through everything once, but not into the objects of libraries.

    ``leaf`` gives for (name, value) what shall be in the place of a tensor, a number or None;
    ``visit`` is called with (name, list, dict or numpy's array, loose) before. Variables, lists and
    dicts around a function are ``loose``: their numbers are left alone. ``names`` are those of
    tensors by ``id``, for what has them as keys. ``copies`` are those of iterators, which take
    their places, None to leave them.
    """

    leaf: Callable[[str, Any], Any]
    visit: Callable[[str, Any, bool], None]
    seen: set[int] = field(default_factory=set)
    names: Mapping[int, str] = field(default_factory=dict)
    copies: dict[int, Iterator] | None = None

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
        if id(value) in self.seen:
            return value
        if isinstance(value, np.ndarray):
            self.visit(name, value, loose)
        holder = contents(value)
        if holder is None and self.copies is not None and not loose and is_iterator(value):
            return self.copies.setdefault(id(value), copied(value))
        if holder is not None:
            self.seen.add(id(value))
            loose = loose and (holder is value or isinstance(holder, View))
            self.visit(name, holder, loose)
            for key, x in [*items(holder)]:
                key_in_name = key if type(key) is str else key_name(key, self.names)
                new = self(f"{name}.{key_in_name}", x, loose)
                if new is not x:
                    holder[key] = new
        return value


def giving_back(arguments: tuple[tuple, dict[str, Any]], function: Callable) -> Callable:
    """Returns the function, which gives the objects among the arguments their content again, such
    as an empty cache of a user's class that forward fills and returns: a compiled program fills no
    object.
    """
    before: list[tuple[Any, Any]] = []

    def visit(name: str, holder: Any, loose: bool) -> None:
        if not isinstance(holder, np.ndarray):
            before.append((holder, snapshot(holder)))

    def run(*args: Any) -> Any:
        try:
            return function(*args)
        finally:
            for holder, content in before:
                restore(holder, content)

    values = [*arguments[0], *arguments[1].values()]
    ARRAYS.update(type(x) for x in values if is_array(x))
    Walk(lambda name, x: x, visit)("", tuple(values))
    return run


def key_name(key: object, names: Mapping[int, str]) -> str:
    """Returns a key as a part of a name: of a weight its own name, without dots.

    Example:
      >>> weight = torch.ones(1)
      >>> key_name(3, {}), key_name(weight, {id(weight): "layer.weight"})
      ('3', '<layer:weight>')
    """
    if isinstance(key, torch.Tensor):
        return f"<{names.get(id(key), 'tensor').replace('.', ':')}>"
    return str(key)


def alike(value: tuple, items: list) -> tuple:
    """A tuple of these items and of the class of ``value``, whose ``__new__`` may take others."""
    if hasattr(type(value), "n_sequence_fields"):  # torch.return_types
        return type(value)(items)
    new = tuple.__new__(type(value), items)
    new.__dict__.update(vars(value)) if hasattr(value, "__dict__") else None
    return new


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


def grown(value: object, branches: object, keys: Mapping[str, torch.Tensor]) -> Any:
    """``value`` with the tensors of such a tree in it: new tuples and dicts where there is nothing
    that could hold them. ``keys`` are weights that dicts may have as keys, by their names there.

    Example:
      >>> grown([], {"0": 1, "1": {"0": 2, "1": 3}}, {}), grown({"a": None}, {"a": {"b": 4}}, {})
      ([1, (2, 3)], {'a': {'b': 4}})
    """
    if not isinstance(branches, dict):
        return branches
    holder = None if value is None or isinstance(value, (tuple, *NUMBERS)) else contents(value)
    if holder is None:
        children = {str(i): x for i, x in enumerate(value if isinstance(value, tuple) else ())}
        children |= {key: grown(None, branch, keys) for key, branch in branches.items()}
        numbered = [str(i) for i in range(len(children))]
        return tuple(map(children.get, numbered)) if {*numbered} == {*children} else children
    places = {str(key): key for key, _ in items(holder)}
    for name, branch in sorted(branches.items(), key=lambda x: (len(x[0]), x[0])):
        key = keys.get(name, places.get(name, name))
        if name in places or isinstance(holder, dict):
            child = grown(holder[key] if name in places else None, branch, keys)
            if name not in places or child is not holder[key]:
                holder[key] = child
        else:
            holder.append(grown(None, branch, keys))
    return value
