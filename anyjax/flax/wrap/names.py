"""The tree of a model's params and state, read from the source's own names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anyjax.model import Model

PARAMS, STATISTICS, BUFFERS = COLLECTIONS = ("params", "batch_stats", "buffers")
# The statistics of BatchNorm, as torch and Keras call them.
OF_BATCHES = {"running_mean", "running_var", "num_batches_tracked"}
OF_BATCHES |= {"moving_mean", "moving_variance"}
_SELF = "value"  # the last name of an array whose name is the beginning of others: "w" beside "w/x"


@dataclass(frozen=True)
class Leaf:
    """One array: the source's name, its path in the tree, its collection."""

    name: str
    path: tuple[str, ...]
    collection: str


@dataclass(frozen=True)
class Node:
    """A submodule: the name of its class, its own arrays, its children by name."""

    kind: str
    path: tuple[str, ...]
    leaves: tuple[Leaf, ...]
    children: tuple[tuple[str, Node], ...]

    def nodes(self) -> Iterator[Node]:
        yield self
        for _, child in self.children:
            yield from child.nodes()


def tree_of(model: Model) -> Node:
    """Returns the tree of a model.

    Example:
      >>> import torch
      >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
      >>> tree = tree_of(anyjax.from_torch(net))
      >>> [(name, child.kind) for name, child in tree.children]
      [('0', 'Linear'), ('1', 'BatchNorm1d')]
      >>> tree.children[1][1].leaves[2]
      Leaf(name='1.running_mean', path=('1', 'running_mean'), collection='batch_stats')
    """
    separator = "/" if model.source.framework == "tensorflow" else "."
    collections = dict.fromkeys(model.params, PARAMS)
    collections |= {name: _collection(name, separator) for name in model.state}
    paths = paths_of(collections, separator)
    leaves = [Leaf(name, paths[name], collection) for name, collection in collections.items()]
    return _node((), leaves, {(): model.source.name, **class_names(model)})


def paths_of(names: Iterable[str], separator: str) -> dict[str, tuple[str, ...]]:
    """Splits names into paths, none of which is the beginning of another.

    Example:
      >>> paths_of(["a.b", "c", "c.d"], ".")
      {'a.b': ('a', 'b'), 'c': ('c', 'value'), 'c.d': ('c', 'd')}
    """
    paths = {name: tuple(name.split(separator)) for name in names}
    inner = {path[:i] for path in paths.values() for i in range(1, len(path))}
    return {name: (*path, _SELF) if path in inner else path for name, path in paths.items()}


def class_names(model: Model) -> dict[tuple[str, ...], str]:
    """Returns the class names of a torch module's submodules by their paths."""
    named = getattr(model.source.module, "named_modules", None)
    if named is None:
        return {}
    kind = lambda module: getattr(module, "original_name", type(module).__name__)
    return {tuple(name.split(".")): kind(module) for name, module in named() if name}


def nested(values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Turns values by path into nested dicts.

    Example:
      >>> nested({("a", "b"): 1, ("a", "c"): 2, ("d",): 3})
      {'a': {'b': 1, 'c': 2}, 'd': 3}
    """
    tree: dict[str, Any] = {}
    for path, value in values.items():
        inner = tree
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    return tree


def _collection(name: str, separator: str) -> str:
    return STATISTICS if name.split(separator)[-1] in OF_BATCHES else BUFFERS


def _node(path: tuple[str, ...], leaves: list[Leaf], kind: Mapping[tuple[str, ...], str]) -> Node:
    depth = len(path)
    direct = tuple(leaf for leaf in leaves if len(leaf.path) == depth + 1)
    by_child: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        if len(leaf.path) > depth + 1:
            by_child.setdefault(leaf.path[depth], []).append(leaf)
    children = tuple((name, _node((*path, name), x, kind)) for name, x in by_child.items())
    return Node(kind.get(path, "Part"), path, direct, children)
