"""The rows of a model's module tree: weights and work, of a module alone and with those inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anyjax.explorer.scopes import Scopes
from anyjax.explorer.work import Tally, Work


@dataclass
class Module:
    """A module.

    Attributes:
      path: "" for the model itself.
      kind: its class, "" where that is not known.
      params: number of trained values, in this module and in those inside of it.
      bytes: of params and state, likewise.
      work: likewise; zeros where there is no program.
      primitives: equations of its own, without those of modules inside of it.
      arrays: names of its own params and state.
    """

    path: str
    kind: str
    params: int = 0
    bytes: int = 0
    work: Tally = field(default_factory=Tally)
    primitives: dict[str, Tally] = field(default_factory=dict)
    arrays: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Array:
    """A param, or an array of the state.

    Attributes:
      name, shape, dtype: of the array.
      trained: whether it is a param.
      size, bytes: values and bytes.
      module: path of the module that it belongs to.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    trained: bool
    size: int
    bytes: int
    module: str


def modules(scopes: Scopes, arrays: list[Array], work: Work) -> list[Module]:
    """Returns the modules in the order of the source, each after those around it."""
    rows: dict[str, Module] = {"": Module("", scopes.kinds.get("", ""))}

    def row(path: str) -> Module:
        for around in reversed([*scopes.lineage(path)]):
            rows.setdefault(around, Module(around, scopes.kinds.get(around, "")))
        return rows[path]

    for path in (*scopes.kinds, *work):
        row(path)
    for array in arrays:
        row(array.module).arrays.append(array.name)
        for around in scopes.lineage(array.module):
            rows[around].params += array.size * array.trained
            rows[around].bytes += array.bytes
    for path, primitives in work.items():
        rows[path].primitives = primitives
        for around in scopes.lineage(path):
            for tally in primitives.values():
                rows[around].work.add(tally)
    return [*rows.values()]


def owners(
    names: Mapping[str, object], readers: Mapping[str, str], scopes: Scopes
) -> dict[str, str]:
    """Returns the module of each weight: the one that reads it first in a program of nodes, where
    names tell little, else that of its name.
    """
    if scopes.of_nodes and readers:
        return {name: readers.get(name, "") for name in names}
    return {name: scopes.owner_of(name) for name in names}
