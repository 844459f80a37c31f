"""What a value of Python is, as something that can be compared: code that finds values of equal
forms wherever it looks computes the same.
"""

from __future__ import annotations

import array
import functools
import io
import logging
import queue
import random
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np
import torch

from tojax.torch.core import private
from tojax.torch.core.dtypes import WIDE
from tojax.torch.core.lifting import array_of, inner
from tojax.torch.core.tensor import GRADIENT, JaxTensor
from tojax.torch.state.attribute_tree import LIBRARIES, MANY

OWN = {*LIBRARIES, "tojax"}  # whose functions keep nothing, the modes of torch apart
SMALL = 4096  # elements of a constant whose values are compared
FLOATS = {float, complex}
SETTINGS = {*FLOATS, bool, int, str, bytes, type(None), type(Ellipsis), type(NotImplemented)}
EMPTY = {dict, list, tuple, OrderedDict}
STATEFUL: Any = (
    torch.Generator,
    np.random.Generator,
    np.random.RandomState,
    random.Random,
    Iterator,
)
STATEFUL += (bytearray, array.array, memoryview, io.IOBase, queue.SimpleQueue)
OPAQUE = (type, types.ModuleType, logging.Logger)  # of which code uses no state
ENGINES = {"torch", "numpy", "jax", "jaxlib", "tojax"}
WRAPPED = (types.MethodType, staticmethod, classmethod)
METHODS = (types.FunctionType, staticmethod, classmethod, property)


class Unprovable(Exception):
    """It cannot be shown that another run would be the same."""


class Forms:
    """Forms of what the code of one block finds, and the tensors among it.

    The block's own modules and all tensors count by the place where they stand, so that those of
    another block have equal forms; other things by their content as far as Python shows it, else by
    identity.

    Attributes:
      block, modules: the block, and all in it by their place there; ``paths`` are those by id.
      given: all tensors, in the order in which they were met; ``tensors`` those that are traced,
        each once.
      arrays: numbers of the arrays in them, by id.
      passed: objects that were taken apart, whose ids are in ``met``.
      kept: objects that count by identity, which have to live as long as a form.
      codes: those of functions whose closures were looked at.
    """

    def __init__(self, block: torch.nn.Module):
        self.block, self.modules = block, dict(block.named_modules())
        self.paths = {id(m): name for name, m in self.modules.items()}
        self.tensors: list[torch.Tensor] = []
        self.given: list[torch.Tensor] = []
        self.arrays: dict[int, int] = {}
        self.met: dict[int, int] = {}
        self.passed: list[Any] = []
        self.kept: list[Any] = []
        self.codes: set[types.CodeType] = set()

    def __call__(self, value: Any) -> Hashable:
        """Something hashable, equal where the values are alike.

        Raises:
          Unprovable: the value is another one whenever it is used, as a generator is.
        """
        kind: Any = type(value)
        if kind in SETTINGS:  # NaN is itself, and 0.0 is not -0.0
            return kind, repr(value) if kind in FLOATS else value
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, torch.nn.Module):
            path = self.paths.get(id(value))
            return ("module", path) if path is not None else self.itself(value)
        if kind in EMPTY and not value:
            return kind
        if id(value) in self.met:
            return "met", self.met[id(value)]
        head, parts = self.taken_apart(value, kind)
        if parts is None:
            return self.itself(value) if _library(kind) else (self.itself(value), self(kind))
        self.met[id(value)] = len(self.met)
        self.passed.append(value)
        try:
            return kind if _library(kind) else self(kind), head, *map(self, parts)
        except RecursionError:
            raise Unprovable(f"it uses a {kind.__name__} that is nested too deep") from None

    def release(self) -> None:
        """Lets go of what was looked at; forms that there are stay valid."""
        for found in (self.given, self.tensors, self.passed):
            found.clear()

    def itself(self, value: Any) -> Hashable:
        """A value that counts by identity."""
        self.kept.append(value)
        return "object", id(value)

    def taken_apart(self, value: Any, kind: Any) -> tuple[Hashable, Any]:
        """(What counts as it is, what a value is made of); None where Python does not show it."""
        if isinstance(value, (list, tuple, deque, set, frozenset, dict, types.MappingProxyType)):
            if len(value) > MANY:
                raise Unprovable(f"it uses a {kind.__name__} of {len(value)} items")
            parts = value
            if hasattr(value, "items"):
                parts = [x for pair in value.items() for x in pair]
            elif isinstance(value, (set, frozenset)):
                parts = sorted(value, key=repr)
            return len(value), [*parts, *_attributes(value)]
        if isinstance(value, types.FunctionType):
            if value.__globals__.get("__name__", "").startswith("tojax."):
                return None, None
            self.codes.add(value.__code__)
            cells = [_content(cell) for cell in value.__closure__ or ()]
            held = value.__defaults__, value.__kwdefaults__, vars(value)
            head = self.itself(value.__code__), self.itself(value.__globals__)
            return head, [*held, *cells]
        if isinstance(value, WRAPPED):
            return None, [value.__func__, getattr(value, "__self__", None)]
        if isinstance(value, property):
            return None, [value.fget, value.fset]
        if isinstance(value, functools.partial):
            return None, [value.func, value.args, value.keywords]
        if isinstance(value, weakref.ref):
            return None, [value()]
        if isinstance(value, ContextVar):
            return self.itself(value), [value.get(None)]
        if isinstance(value, np.ndarray) and value.size <= SMALL and not value.dtype.hasobject:
            return (value.dtype, value.shape, value.tobytes()), []
        if isinstance(value, (*STATEFUL, np.ndarray)):
            raise Unprovable(f"it uses a {kind.__name__}")
        if isinstance(value, type) and not _library(value):
            own = [c for c in value.__mro__ if not _library(c)]
            now = tuple((c, *map(self.itself, vars(c).values())) for c in own)
            return now, [x for c in own for x in _settings(c)]
        if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] not in OWN:
            raise Unprovable(f"it holds the module {value.__name__}")
        engine = kind.__module__.partition(".")[0] in ENGINES
        opaque = isinstance(value, OPAQUE) or (engine and callable(value))
        return None, None if opaque else _attributes(value) or None

    def tensor(self, tensor: torch.Tensor) -> Hashable:
        """A traced tensor by its traits and number, a constant by its values."""
        if private.level_of(tensor) != -1:
            raise Unprovable("it runs inside torch.vmap or torch.func")
        held = inner(tensor)
        self.given.append(tensor)
        if not isinstance(held, JaxTensor):
            number = self.met.setdefault(id(held), len(self.met))
            return number, self.constant(held), *map(self, _attributes(tensor))
        if not all(isinstance(n, int) for n in held.array.shape):
            raise Unprovable("sizes are symbolic")
        if id(tensor) not in self.met:
            if not isinstance(held.array, jax.core.Tracer) or held.parts:
                raise Unprovable("it is given a tensor of which more than its kind is known")
            self.met[id(tensor)] = len(self.met)
            self.tensors.append(tensor)
        number = self.arrays.setdefault(id(held.array), len(self.arrays))
        layout = None if held.is_contiguous() else (held.stride(), held.storage_offset())
        named = getattr(tensor, private.IS_PARAMETER, False), held.holder is None, held.retained
        traits = type(held), held.dtype, layout, held.origins & GRADIENT, held.bounds, named
        hooked = held.before_hooks is None and held.required is None
        same = self.met[id(tensor)], number, jax.typeof(held.array)
        return "traced", same, traits, hooked, *map(self, _attributes(tensor))

    def constant(self, held: torch.Tensor) -> Hashable:
        """A tensor whose values are known."""
        kind = type(held), held.dtype, tuple(held.shape), held.requires_grad
        dense = held.layout is torch.strided and not (held.is_meta or held.is_quantized)
        if dense and held.numel() <= SMALL:
            wide = held.dtype in WIDE  # which JAX would narrow
            values = repr(held.tolist()) if wide else np.asarray(array_of(held)).tobytes()
            return "constant", values, held.stride(), kind
        if held.is_inference():
            raise Unprovable("it uses a large tensor that counts no writes")
        return "constant", self.itself(held), held._version, kind


def _library(kind: Any) -> bool:
    return kind.__module__.partition(".")[0] in LIBRARIES


def _attributes(value: Any) -> list[Any]:
    """Names and values of an object's own attributes."""
    found = [x for pair in getattr(value, "__dict__", {}).items() for x in pair]
    for kind in type(value).__mro__:
        slots = () if _library(kind) else vars(kind).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            found += [name, getattr(value, name, None)]
    return found


def _settings(kind: type) -> list[Any]:
    """What a class has for its objects that may change and stay the same object."""
    held = vars(kind).items()
    return [x for k, x in held if (isinstance(x, METHODS) or k[:2] != "__") and not _fixed(x)]


def _fixed(value: Any) -> bool:
    if isinstance(value, property):
        return _fixed(value.fget) and _fixed(value.fset)
    value = getattr(value, "__func__", value)
    if not isinstance(value, types.FunctionType):
        return type(value) in SETTINGS
    closes_over = {*value.__code__.co_freevars} - {"__class__"}
    return not (closes_over or value.__defaults__ or value.__kwdefaults__ or vars(value))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
