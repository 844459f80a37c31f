"""PyTorch's names of modules and arrays that Python or Flax cannot have as attributes."""

from __future__ import annotations

import contextlib
import keyword
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import torch

from anyjax.flax.codegen.graph.graph import Graph
from anyjax.flax.codegen.graph.private import not_saved
from anyjax.flax.codegen.python.syntax import free_name

Spellings = dict[str, str]  # the file's dotted names by PyTorch's, outer modules first
DICTS = torch.nn.ModuleDict, torch.nn.ParameterDict


def spellings(
    module: torch.nn.Module,
    reserved: Collection[str],
    loader_name: Callable[[str], str] = lambda name: name,
) -> Spellings:
    """Returns another name for each module and array whose own the file cannot have.

    Args:
      reserved: attributes that mean something else in Flax.
      loader_name: gives the name by which the file's loader finds an array; two arrays of one such
        name are told apart by an underscore.
    """
    names: Spellings = {}
    for path, inner in module.named_modules(remove_duplicate=False):
        names |= _of_members(spelled(path, names), inner, reserved)
    while True:
        with renamed(module, names):
            new = _told_apart(module, loader_name)
        if not new:
            return names
        names |= new


def spelled(name: str, names: Spellings) -> str:
    """Returns a dotted name as the file has it.

    Example:
      >>> spelled("layers.b-c.weight", {"layers.b-c": "layers.b_c"})
      'layers.b_c.weight'
    """
    for old, new in names.items():
        if f"{name}.".startswith(f"{old}."):
            name = new + name[len(old) :]
    return name


@contextlib.contextmanager
def renamed(module: torch.nn.Module, names: Spellings) -> Iterator[None]:
    """Gives the module the file's names until the exit."""
    _rename(module, names)
    try:
        yield
    finally:
        _rename(module, {new: old for old, new in reversed(names.items())})


def in_spelling(graph: Graph, names: Spellings) -> Graph:
    """Returns the graph with the file's names of modules and arrays."""
    if not names:
        return graph

    def called(path: str) -> str:
        path, at, rest = path.partition("@")
        return spelled(path, names) + at + rest

    for node in graph.nodes:
        if stack := node.meta.get("nn_module_stack"):
            node.meta["nn_module_stack"] = {k: (called(x), y) for k, (x, y) in stack.items()}
    roles = {
        node: (kind, spelled(name, names) if kind in {"param", "buffer"} else name)
        for node, (kind, name) in graph.roles.items()
    }
    return replace(
        graph,
        roles=roles,
        signatures=graph.signatures | {called(k): x for k, x in graph.signatures.items()},
        constants={spelled(k, names): x for k, x in graph.constants.items()},
    )


def _tables(module: torch.nn.Module) -> list[dict]:
    return [module._modules, module._parameters, module._buffers]


def _of_members(path: str, module: torch.nn.Module, reserved: Collection[str]) -> Spellings:
    """Returns the new names of what a module holds itself."""
    members = [name for table in _tables(module) for name in table]
    counted = {x for x in members if x.isdecimal()}
    in_order = counted == {str(i) for i in range(len(counted))}
    if isinstance(module, DICTS):
        reserved = {*reserved, *dir(dict)}
        in_order &= len(counted) == len(members)
    used, new = {*members, *reserved}, {}
    for name in members:
        if not (name in counted and in_order) and not _is_attribute(name, reserved):
            attribute = free_name(_as_attribute(name), used)
            used.add(attribute)
            new[_join(path, name)] = _join(path, attribute)
    return new


def _is_attribute(name: str, reserved: Collection[str]) -> bool:
    is_name = name.isidentifier() and not keyword.iskeyword(name) and name not in reserved
    return is_name and not name.startswith("__") and unicodedata.normalize("NFKC", name) == name


def _as_attribute(name: str) -> str:
    """Returns a name of Python's that is like this one."""
    text = re.sub(r"\W", "_", unicodedata.normalize("NFKC", name))
    text = text.lstrip("_") if text.startswith("__") else text
    return text if text.isidentifier() and not keyword.iskeyword(text) else f"_{text}"


def _told_apart(module: torch.nn.Module, loader_name: Callable[[str], str]) -> Spellings:
    """Returns new names for the arrays that the loader takes for another one's."""
    arrays = [*module.state_dict()]
    counts = Counter(map(loader_name, arrays))
    for name in (x for x in arrays if counts[loader_name(x)] > 1):
        home = name.rpartition(".")[0]
        path = home if home and not home.rpartition(".")[2].isdecimal() else name
        if path == name and type(module.get_submodule(home)).__module__.startswith("torch.nn"):
            continue  # a layer's own array
        return {path: f"{path}_"}
    return {}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _rename(module: torch.nn.Module, names: Spellings) -> None:
    """Renames members in the order of these names, the outer ones first or last."""
    for old, new in names.items():
        home = module.get_submodule(old.rpartition(".")[0])
        old_leaf, new_leaf = old.rpartition(".")[2], new.rpartition(".")[2]
        for table in _tables(home):
            if old_leaf in table:
                items = [(new_leaf if k == old_leaf else k, x) for k, x in table.items()]
                table.clear()
                table.update(items)
        hidden = not_saved(home)
        if old_leaf in hidden:
            hidden.remove(old_leaf)
            hidden.add(new_leaf)
