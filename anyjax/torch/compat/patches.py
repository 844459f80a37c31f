"""Functions of other libraries that are replaced while a thread traces.

A replacement computes the same without looking at values: a check of them is left out, a hint that
only chooses a faster kernel is not given. Threads that do not trace get the original. A patch whose
target is gone is an error, and so is one whose target is no longer called: each has a probe, a call
that must come to it, and all probes run before the first conversion.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

from anyjax.private_names import Target, check_version, gone
from anyjax.torch.core import current_trace, private

ABSENT = object()


@dataclass(frozen=True, eq=False)  # hashed at every trace
class Patch:
    """``replacement(original, *args, **kwargs)`` in place of ``target``.

    ``probe`` is a call that comes to the target, or finds out whether one would; None where users
    call it by its name. An attribute
    ``of_classes`` is replaced in their metaclass: ``replacement(own, cls)`` is what classes have.
    """

    target: Target
    replacement: Callable
    probe: Callable[[], Any] | None = None
    of_classes: bool = False


class Property:
    """A metaclass's answer for an attribute of its classes; what they are given meanwhile, as new
    classes are, is theirs when it is over.
    """

    def __init__(self, patch: Patch, active: Callable[[], bool]):
        self.patch, self.active = patch, active
        self.given: dict[type, Any] = {}

    def own(self, cls: type) -> Any:
        """Returns the attribute of the class itself."""
        if cls in self.given:
            return self.given[cls]
        for base in cls.__mro__:
            if self.patch.target.name in vars(base):
                value = vars(base)[self.patch.target.name]
                return value.__get__(None, cls) if hasattr(value, "__get__") else value
        raise AttributeError(self.patch.target.name)

    def __get__(self, cls: type, owner: type | None = None) -> Any:
        return self.patch.replacement(self.own, cls) if self.active() else self.own(cls)

    def __set__(self, cls: type, value: object) -> None:
        self.given[cls] = value

    def settle(self) -> None:
        """Gives the classes what they were given, once the property is off."""
        while self.given:
            cls, value = self.given.popitem()
            setattr(cls, self.patch.target.name, value)


@functools.lru_cache(256)
def replaced(patch: Patch, original: Callable, active: Callable[[], bool]) -> Callable:
    """Returns the function that stands in the place of ``original``."""
    replacement = patch.replacement

    @functools.wraps(original)
    def function(*args, **kwargs):
        return replacement(original, *args, **kwargs) if active() else original(*args, **kwargs)

    return function


PATCHES: dict[Target, Patch] = {}


def replaces(*targets: Target, probe=None, of_classes=False) -> Callable[[Callable], Callable]:
    """Decorator: this function stands in the place of each target."""

    def add(replacement: Callable) -> Callable:
        PATCHES.update({t: Patch(t, replacement, probe, of_classes) for t in targets})
        return replacement

    return add


@contextlib.contextmanager
def applied(patches: list[Patch], active: Callable[[], bool]) -> Iterator[None]:
    """These patches, for the threads in which ``active()``."""
    originals = []
    try:
        for patch in patches:
            owner, name = patch.target.place, patch.target.name
            if patch.of_classes:
                replacement: Any = Property(patch, active)
            else:
                function = getattr(owner, name, owner)
                if function.__hash__ is None:  # a method that pybind11 made
                    function = function.__func__
                replacement = replaced(patch, function, active)
            originals.append((owner, name, vars(owner).get(name, ABSENT), replacement))
            setattr(owner, name, replacement)
        yield
    finally:
        for owner, name, original, replacement in reversed(originals):
            delattr(owner, name) if original is ABSENT else setattr(owner, name, original)
            if isinstance(replacement, Property):
                replacement.settle()


def patched() -> contextlib.AbstractContextManager:
    """Returns all patches of what is loaded, for the threads that trace."""
    return applied(_loaded(len(sys.modules), (id(PATCHES), len(PATCHES))), current_trace.active)


@functools.lru_cache(1)
def _loaded(modules: int, table: tuple[int, int]) -> list[Patch]:
    """The patches of what is loaded while there are this many modules."""
    patches = [p for t, p in PATCHES.items() if t.module in sys.modules and t.exists]
    return [*patches, *_imported(patches)]


LIBRARIES = ("torch", "torchvision")
OWN = {"torch", "functorch", "transformers", "jax", "anyjax"}  # with targets of their own


def _imported(patches: list[Patch]) -> Iterator[Patch]:
    """Yields a patch for each name under which a package has imported a library's target."""
    targets = [
        p for p in patches if p.target.package in LIBRARIES and inspect.ismodule(p.target.place)
    ]
    originals = {id(vars(p.target.place).get(p.target.name, p)): p for p in targets}
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] not in OWN and inspect.ismodule(module):
            for alias, value in [*vars(module).items()]:
                if patch := originals.get(id(value)):
                    where = Target(f"{name}:", alias, patch.target.feature)
                    yield dataclasses.replace(patch, target=where, probe=None)


CHECKED: set[Target] = set()


class Reached(Exception):
    """A probe came to its target."""


def mentions(module: str, name: str) -> bool:
    """Returns whether code of a loaded module calls something of this name: a probe where a call
    would need a model.
    """
    definitions = [
        x for x in vars(sys.modules[module]).values() if getattr(x, "__module__", "") == module
    ]
    functions = [
        f for x in definitions for f in ([x] if not isinstance(x, type) else vars(x).values())
    ]
    codes = [inspect.unwrap(f).__code__ for f in functions if inspect.isfunction(f)]
    while codes:
        code = codes.pop()
        if name in code.co_names:
            return True
        codes += [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return False


def checked() -> None:
    """Runs the probes of patches whose modules were loaded since the last time.

    Raises:
      IncompatibleVersion: a target is not called where it used to be.
    """
    if current_trace.active():
        return
    if "transformers" in sys.modules:
        check_version("transformers")
    for target in _unchecked(len(sys.modules), (id(PATCHES), len(PATCHES))) - CHECKED:
        if target.loaded:
            patch = PATCHES[target]
            try:
                is_called = patch.probe is None or reaches(patch, patch.probe)
            except Exception as error:
                raise gone(target, "cannot be reached") from error
            if not is_called:
                raise gone(target, "is not called any more")
            CHECKED.add(target)
        elif target.exists and target.package in sys.modules and not exists(target.module):
            raise gone(target)


@functools.lru_cache(1)
def _unchecked(modules: int, table: tuple[int, int]) -> set[Target]:
    """The targets that are to be looked at while there are this many modules."""
    return {t for t in PATCHES.keys() - CHECKED if t.loaded or t.package in sys.modules}


@functools.cache
def exists(module: str) -> bool:
    """Returns whether it could be imported."""
    return find_spec(module) is not None


def reaches(patch: Patch, probe: Callable[[], object]) -> bool:
    """Returns whether the probe comes to the target."""
    thread = threading.get_ident()

    def reached(*args: Any, **kwargs: Any) -> Any:
        raise Reached

    patch = dataclasses.replace(patch, replacement=reached)
    in_this_thread = lambda: threading.get_ident() == thread
    unmoded, generator = private.without_modes(), torch.random.fork_rng(devices=[])
    with unmoded, generator, torch.no_grad(), applied([patch], in_this_thread):
        try:
            return probe() is True
        except Reached:
            return True


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Parts that ``torch.compile`` was applied to run as they were written."""
    if "torch._dynamo" not in sys.modules:  # nothing was compiled, and its import takes seconds
        yield
        return
    with private.uncompiled_frames(), torch.compiler.set_stance("force_eager"):
        yield
