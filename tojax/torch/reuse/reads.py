"""What code looks at while a block runs: attributes of modules, and globals of its functions."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Hashable, Iterator
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

import torch

from tojax.torch.core import private
from tojax.torch.reuse.forms import OWN, Forms, Unprovable

ABSENT = object()
# What gives another value in each call, or may, of the libraries of which nothing else is kept.
FRESH = {"default_rng", "Random", "SystemRandom", "RandomState", "urandom"}
LIBRARY: dict[int, dict[str, Any]] = {}  # globals of modules in OWN
OPEN: list[Reads] = []  # of this trace: blocks may be in blocks


class Read(NamedTuple):
    """Where something was looked up: the place of a module in the block, or what is the same for
    all blocks; and the name of an attribute, or of a global.
    """

    holder: Any
    name: str


class Reads:
    """What is read in one run, with the form that each had when it was looked at first."""

    def __init__(self, forms: Forms):
        self.forms = forms
        self.found: dict[tuple[Any, str], tuple[Read, Hashable]] = {}
        self.codes: set[Any] = set()
        self.why: str | None = None

    def attribute(self, module: torch.nn.Module, name: str) -> None:
        """An attribute of a module, own or not."""
        path = self.forms.paths.get(id(module))
        self.note(Read(module if path is None else path, name))

    def called(self, frame: FrameType) -> None:
        """A function that begins: the globals that it names, also in modules that it imports; as
        ``globals()["name"]`` and ``getattr(module, "name")``, too.
        """
        code, around = frame.f_code, frame.f_globals
        if code in self.codes:
            return
        self.codes.add(code)
        names = (*code.co_names, *(x for x in code.co_consts if type(x) is str))
        if {*code.co_freevars} - {"__class__"} and code not in self.forms.codes:
            self.why = self.why or f"nobody knows what {code.co_qualname} closes over"
        if fresh := FRESH.intersection(names):
            self.why = self.why or f"it uses {fresh.pop()}"
        self.forms.codes.update(x for x in code.co_consts if isinstance(x, CodeType))
        package = (around.get("__package__") or "").split(".")
        for name in names:
            if name in around:
                self.note(Read(around, name))
                self.inside(around[name], names)
            for i in range(len(package) + 1):
                self.inside(sys.modules.get(".".join([*package[:i], name])), names)

    def inside(self, module: Any, names: tuple[str, ...]) -> None:
        """What a function may read in a module, and in modules in that."""
        if not isinstance(module, ModuleType) or module.__name__.partition(".")[0] in OWN:
            return
        for name in names:
            if name in vars(module) and (id(vars(module)), name) not in self.found:
                self.note(Read(vars(module), name))
                self.inside(vars(module)[name], names)

    def passed(self, forms: Forms, read: Read) -> None:
        """What a block inside of this one would have looked at."""
        holder = forms.modules[read.holder] if isinstance(read.holder, str) else read.holder
        if isinstance(holder, torch.nn.Module):
            self.attribute(holder, read.name)
        else:
            self.note(read)

    def note(self, read: Read) -> None:
        """Keeps the form that a thing has now, if it was not looked at before."""
        holder = read.holder
        key = holder if isinstance(holder, str) else id(holder), read.name
        if key in self.found or self.why:
            return
        try:
            with private.DisableTorchFunction():
                self.found[key] = read, form(self.forms, read)
        except Unprovable as reason:
            self.why = str(reason)


def form(forms: Forms, read: Read) -> Hashable:
    """The form of what stands there now."""
    holder, name = read
    if isinstance(holder, dict):
        value = holder.get(name, ABSENT)
        return forms.itself(value) if isinstance(value, ModuleType) else forms(value)
    return forms(held(forms.modules[holder] if isinstance(holder, str) else holder, name))


def held(module: torch.nn.Module, name: str) -> Any:
    """What an attribute is, without running code."""
    own = object.__getattribute__(module, "__dict__")
    if name in own:
        return original(own[name]) if name == "forward" else own[name]
    if name == "__dict__":
        return own
    for place in ("_parameters", "_buffers", "_modules"):
        if name in (found := own.get(place) or {}):
            return found[name]
    return next((vars(c)[name] for c in type(module).__mro__ if name in vars(c)), ABSENT)


def original(value: Any) -> Any:
    """What stands behind the forward of a block that may be shared."""
    return value.own if type(value).__name__ == "Entrance" else value


def _called(frame: FrameType, event: str, arg: Any) -> None:
    """Follows calls; those of libraries are many, and are known by their globals."""
    around = frame.f_globals
    if id(around) in LIBRARY:
        return
    if around.get("__name__", "").partition(".")[0] in OWN:
        LIBRARY[id(around)] = around
        return
    for reads in OPEN:
        reads.called(frame)


def _looked_up(module: torch.nn.Module, name: str) -> Any:
    """Stands in the place of ``object.__getattribute__`` for modules."""
    if threading.get_ident() == THREAD[0] and name != "__class__":
        frame = sys._getframe(1)
        if name != "__dict__" or frame.f_code is not FALLBACK:
            for reads in OPEN:
                reads.attribute(module, name)
    return object.__getattribute__(module, name)


FALLBACK = torch.nn.Module.__getattr__.__code__  # looks in the dicts of parameters and so on
THREAD = [0]


@contextlib.contextmanager
def watching(reads: Reads) -> Iterator[None]:
    """What is looked at in here comes to ``reads``, and to those around them."""
    OPEN.append(reads)
    if len(OPEN) == 1:
        THREAD[0] = threading.get_ident()
        torch.nn.Module.__getattribute__ = _looked_up
        sys.settrace(_called)
    try:
        yield
    finally:
        OPEN.remove(reads)
        if not OPEN:
            sys.settrace(None)
            del torch.nn.Module.__getattribute__


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """What is looked at in here is not what the block looks at."""
    before, OPEN[:] = [*OPEN], []
    try:
        with private.DisableTorchFunction():
            yield
    finally:
        OPEN[:] = before


def may_watch() -> bool:
    """Whether no debugger, or other tool that follows calls, would be in the way."""
    return sys.gettrace() in (None, _called)
