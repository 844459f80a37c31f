"""Facades: packages whose names are listed at once, and loaded when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from anyjax.errors import imports_of

# Functions of completers that read each name that dir lists, to see whether it is callable. All
# frameworks would be loaded; a name that is not there they list as well.
READERS = {("rlcompleter", "attr_matches"), ("jedi.inference.compiled.access", "getattr_paths")}


def facade(
    package: str,
    homes: Mapping[str, str],
    parts: Sequence[str] = (),
    elsewhere: Mapping[str, str] | None = None,
) -> None:
    """Makes a facade of a package that is being imported; gives it an ``__all__`` if it has none.

    Args:
      package: its ``__name__``.
      homes: names, and in which modules they are. Type checkers read them under ``TYPE_CHECKING``;
        tests/typing/test_facades.py compares the two.
      parts: modules of the package that need no import of their own, such as ``anyjax.train``.
      elsewhere: names that are looked for here, and what to write for them.

    Example:
      >>> import anyjax.flax
      >>> "to_nnx" in dir(anyjax.flax)
      True
    """
    module = sys.modules[package]
    table = Facade(module, homes, parts, elsewhere or {})
    # In a way that type checkers do not see: to them a module with __getattr__ has any name.
    vars(module).update(__getattr__=table.load, __dir__=table.listed)
    vars(module).setdefault("__all__", sorted(homes))


class Facade:
    """The names of a package that lie elsewhere; see ``facade``."""

    def __init__(
        self,
        module: ModuleType,
        homes: Mapping[str, str],
        parts: Sequence[str],
        elsewhere: Mapping[str, str],
    ):
        self.module, self.homes, self.submodules = module, homes, parts
        self.elsewhere = elsewhere

    def load(self, name: str) -> Any:
        """Returns the value of a name; the module has it from then on.

        Raises:
          MissingDependency: a package that it needs is not installed.
          AttributeError: there is no such name; the message has those that are near.
        """
        reader = sys._getframe(1)
        if (reader.f_globals.get("__name__"), reader.f_code.co_name) in READERS:
            raise AttributeError(name)
        package = self.module.__name__
        if name in self.submodules:
            return importlib.import_module(f"{package}.{name}")
        if name not in self.homes:
            raise AttributeError(self._unknown(name))
        with imports_of(f"{package}.{name}"):
            value = getattr(importlib.import_module(self.homes[name]), name)
        setattr(self.module, name, value)
        return value

    def listed(self) -> list[str]:
        """Returns the names for ``dir``: those that users type, and those of Python."""
        return sorted({*(x for x in vars(self.module) if x.startswith("__")), *self._public()})

    def _public(self) -> list[str]:
        return [*dict.fromkeys((*vars(self.module)["__all__"], *self.submodules))]

    def _unknown(self, name: str) -> str:
        """Returns the message for a name that is not here: near ones, and where such a name is."""
        import difflib

        places = {x: x for x in self._public()} | dict(self.elsewhere)
        near = [places[x] for x in difflib.get_close_matches(name, places, 3, 0.7)]
        suggestion = f"; did you mean {' or '.join(near)}?" if near else "."
        names = ", ".join(x for x in self._public() if x not in self.submodules)
        ending = f", and the parts {', '.join(self.submodules)}" if self.submodules else ""
        return (
            f"module {self.module.__name__!r} has no attribute {name!r}{suggestion} "
            f"It has {names}{ending}"
        )
