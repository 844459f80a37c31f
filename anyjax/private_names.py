"""Private names of other packages that anyjax builds on: looked up loudly.

``need`` looks a name up when the file that asks for it is loaded, for what everything is built on;
``optional`` raises only where a feature uses it. Either way one that is gone is an error that says
which feature needs it. What is patched during a trace is a ``Target``, looked up when its module is
there.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any, NoReturn

import jax

from anyjax.errors import TESTED, IncompatibleVersion, UntestedVersion
from anyjax.warn_once import warn

NAMES: dict[str, str] = {}  # name -> the feature that needs it
TARGETS: list[Target] = []  # what is patched, those of generation too once that is loaded


def gone(name: str | Target, problem: str = "is gone", feature: str = "") -> IncompatibleVersion:
    """The error for a name that the installed version does not have, or does not use."""
    path, feature = (name, feature) if isinstance(name, str) else (name.path, name.feature)
    package = path.partition(".")[0].partition(":")[0]
    return IncompatibleVersion(
        f"{path.replace(':', '.').rstrip('.')} {problem}: anyjax needs it for {feature}",
        where=f"{package} {metadata.version(package)}",
        why=f"such names come and go with versions; anyjax was tested with {_range(package)}",
        do=f"install one of these versions of {package}, or a newer anyjax",
    )


def _range(package: str) -> str:
    return " to ".join(dict.fromkeys(TESTED[package]))


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version: others are repairs."""
    return tuple(int(x) for x in re.findall(r"\d+", version)[:2])


@functools.cache
def check_version(package: str) -> None:
    """Warns once if the installed version of a package is outside of the tested range.

    Example:
      >>> check_version("jax")  # a tested one
    """
    version = getattr(sys.modules.get(package), "__version__", None) or metadata.version(package)
    first, last = map(_numbers, TESTED[package])
    if not first <= _numbers(version) <= last:
        warn(
            f"anyjax was tested with {package} {_range(package)}, and {version} is installed. What "
            "differs may fail; `pip install` one of these versions if it does",
            UntestedVersion,
        )


def found(name: str) -> Any:
    """Looks up a dotted name; ``module:name`` or ``module:`` where a package hides a module.

    Raises:
      AttributeError: there is none.
    """
    module, colon, inside = name.partition(":")
    if colon:
        value: Any = sys.modules.get(module) or importlib.import_module(module)
        return functools.reduce(lambda x, n: getattr(x, n), filter(None, inside.split(".")), value)
    path, *rest = module.split(".")
    value = importlib.import_module(path)
    for attribute in rest:
        path += f".{attribute}"
        if not hasattr(value, attribute) and path not in sys.modules:
            try:
                importlib.import_module(path)
            except ImportError:
                raise AttributeError(path) from None
        value = getattr(value, attribute)
    return value


def need(name: str, feature: str) -> Any:
    """Looks up a private name.

    Raises:
      IncompatibleVersion: the installed version does not have it.
    """
    NAMES[name] = feature
    try:
        return found(name)
    except (AttributeError, ImportError):
        raise gone(name, feature=feature) from None


class Gone:
    """Stands for a name that the installed version does not have: any use of it raises."""

    def __init__(self, error: IncompatibleVersion):
        self._error = error

    def _raise(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._error

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(name) if name.startswith("__") else self._error  # inspection asks

    __call__ = __getitem__ = __iter__ = __contains__ = __len__ = _raise
    __instancecheck__ = __mro_entries__ = __enter__ = _raise


def optional(name: str, feature: str) -> Any:
    """Returns what a private name stands for; if it is gone, a ``Gone``, which raises when the
    feature is used.
    """
    try:
        return need(name, feature)
    except IncompatibleVersion as error:
        return Gone(error)


def known_arguments(function: Callable, **arguments: Any) -> dict[str, Any]:
    """Returns those of the arguments that the installed version of a function has.

    Example:
      >>> known_arguments(sorted, reverse=True, stable=True)
      {'reverse': True}
    """
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in parameters}


@dataclass(frozen=True, eq=False)
class Target:
    """A function that is replaced while a thread traces: ``name`` of the object ``owner``.

    ``since`` and ``until`` are the first version that has it, and the first one that does not.
    """

    owner: str
    name: str
    feature: str
    made_later: bool = False  # torch sets it when it is first needed
    since: str = ""
    until: str = ""

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
        return self.owner.partition(":")[0]

    @functools.cached_property
    def exists(self) -> bool:
        """Whether the installed version is one that has it."""
        if not self.since and not self.until:
            return True
        version = _numbers(metadata.version(self.package))
        return _numbers(self.since) <= version and (
            not self.until or version < _numbers(self.until)
        )

    @property
    def loaded(self) -> bool:
        """Whether the module was imported, and has it."""
        return self.module in sys.modules and self.exists


def target(owner: str, name: str, feature: str, made_later: bool = False, **versions) -> Target:
    """Returns a target, in the list of them."""
    TARGETS.append(Target(owner, name, feature, made_later, **versions))
    return TARGETS[-1]


# What a comparison of symbolic sizes raises where it holds for some of their values only.
Inconclusive: Any = getattr(jax.errors, "InconclusiveDimensionOperation", None)
if Inconclusive is None:  # before JAX 0.10.2
    Inconclusive = need("jax.extend.core:InconclusiveDimensionOperation", "symbolic sizes")
