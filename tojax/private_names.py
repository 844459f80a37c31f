"""Private names of other packages that tojax builds on: looked up loudly.

A name is looked up when the file that asks for it is loaded; one that is gone is an error that says
which feature needs it. What is patched during a trace is a ``Target``, looked up when its module is
there.
"""

from __future__ import annotations

import functools
import importlib
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from tojax.errors import IncompatibleVersion

# What these names were tested with: `make compat`.
TESTED = {
    "jax": "0.10.0 to 0.12.0",
    "torch": "2.10.0 to 2.15.0",
    "transformers": "5.23.0",
    "tensorflow": "2.21.0",
}
NAMES: dict[str, str] = {}  # name -> the feature that needs it
TARGETS: list[Target] = []  # what is patched, those of generation too once that is loaded


def gone(name: str | Target, problem: str = "is gone", feature: str = "") -> IncompatibleVersion:
    """The error for a name that the installed version does not have, or does not use."""
    path, feature = (name, feature) if isinstance(name, str) else (name.path, name.feature)
    package = path.partition(".")[0].partition(":")[0]
    return IncompatibleVersion(
        f"{path.replace(':', '.')} {problem}: tojax needs it for {feature}",
        where=f"{package} {metadata.version(package)}",
        why=f"it is private to {package}; tojax was tested with {TESTED[package]}",
        do=f"install one of these versions of {package}, or a newer tojax",
    )


def found(name: str) -> Any:
    """What a dotted name stands for; where a package hides a module, ``module:name``.

    Raises:
      AttributeError: there is none.
    """
    module, colon, inside = name.partition(":")
    if colon:
        value: Any = sys.modules.get(module) or importlib.import_module(module)
        return functools.reduce(lambda x, n: getattr(x, n), filter(None, inside.split(".")), value)
    path, *rest = module.split(".")
    value = importlib.import_module(path)
    for part in rest:
        path += f".{part}"
        if not hasattr(value, part) and path not in sys.modules:
            try:
                importlib.import_module(path)
            except ImportError:
                raise AttributeError(path) from None
        value = getattr(value, part)
    return value


def need(name: str, feature: str) -> Any:
    """What a private name stands for.

    Raises:
      IncompatibleVersion: the installed version does not have it.
    """
    NAMES[name] = feature
    try:
        return found(name)
    except (AttributeError, ImportError):
        raise gone(name, feature=feature) from None


@dataclass(frozen=True, eq=False)
class Target:
    """What is replaced while a thread traces: ``name`` of what ``owner`` stands for."""

    owner: str
    name: str
    feature: str
    made_later: bool = False  # torch sets it when it is first needed

    @functools.cached_property
    def path(self) -> str:
        """The whole name."""
        return f"{self.owner}.{self.name}".replace(":", ".")

    @functools.cached_property
    def place(self) -> Any:
        """The module or class that has it.

        Raises:
          IncompatibleVersion: there is none, or it does not have it.
        """
        owner = need(self.owner, self.feature)
        if not self.made_later and not hasattr(owner, self.name):
            raise gone(self)
        return owner

    @functools.cached_property
    def package(self) -> str:
        """torch or transformers."""
        return self.owner.partition(".")[0].partition(":")[0]

    @functools.cached_property
    def module(self) -> str:
        """The module that has it, or whose class does."""
        return self.owner.partition(":")[0]

    @property
    def loaded(self) -> bool:
        """Whether the module was imported."""
        return self.module in sys.modules


def target(owner: str, name: str, feature: str, made_later: bool = False) -> Target:
    """A target, in the list of them."""
    TARGETS.append(Target(owner, name, feature, made_later))
    return TARGETS[-1]
