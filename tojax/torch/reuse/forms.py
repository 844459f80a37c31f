"""What a value of Python is, as something that can be compared: code that finds values of equal
forms wherever it looks computes the same.
"""

from __future__ import annotations

import array
import functools
import logging
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
from tojax.torch.core.lifting import array_of, inner
from tojax.torch.core.tensor import GRADIENT, JaxTensor
from tojax.torch.state.attribute_tree import LIBRARIES, MANY

SMALL = 4096  # elements of a constant whose values are compared
SETTINGS = {bool, int, str, bytes, complex, type(None), type(Ellipsis), type(NotImplemented)}
EMPTY = {dict, list, tuple, OrderedDict}
STATEFUL: Any = (
    torch.Generator,
    np.random.Generator,
    np.random.RandomState,
    random.Random,
    Iterator,
)
STATEFUL += (bytearray, array.array)
OPAQUE = (type, types.ModuleType, logging.Logger)  # of which code uses no state
ENGINES = {"torch", "numpy", "jax", "jaxlib"}


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

    def __call__(self, value: Any) -> Hashable:
        """Something hashable, equal where the values are alike.

        Raises:
          Unprovable: the value is another one whenever it is used, as a generator is.
        """
        kind: Any = type(value)
        if kind in SETTINGS:
            return kind, value
        if kind is float:
            return kind, repr(value)  # NaN is itself, and 0.0 is not -0.0
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
            return self.itself(value)
        self.met[id(value)] = len(self.met)
        self.passed.append(value)
        return kind, head, *map(self, parts)

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
            cells = [_content(cell) for cell in value.__closure__ or ()]
            held = value.__defaults__, value.__kwdefaults__, vars(value)
            head = self.itself(value.__code__), self.itself(value.__globals__)
            return head, [*filter(None, held), *cells]
        if isinstance(value, types.MethodType):
            return None, [value.__func__, value.__self__]
        if isinstance(value, functools.partial):
            return None, [value.func, value.args, value.keywords]
        if isinstance(value, weakref.ref):
            return None, [value()]
        if isinstance(value, ContextVar):
            return self.itself(value), [value.get(None)]
        if isinstance(value, np.ndarray) and value.size <= SMALL and not value.dtype.hasobject:
            return (value.dtype.str, value.shape, value.tobytes()), []
        if isinstance(value, (*STATEFUL, np.ndarray)):
            raise Unprovable(f"it uses a {kind.__name__}")
        if isinstance(value, type) and not _library(value):
            return self.itself(value), [x for c in value.__mro__ for x in _settings(c)]
        opaque = isinstance(value, OPAQUE) or kind.__module__.partition(".")[0] in ENGINES
        return None, None if opaque else _attributes(value) or None

    def tensor(self, tensor: torch.Tensor) -> Hashable:
        """A traced tensor by its traits and number, a constant by its values."""
        if private.level_of(tensor) != -1:
            raise Unprovable("it runs inside torch.vmap or torch.func")
        held = inner(tensor)
        self.given.append(tensor)
        if not isinstance(held, JaxTensor):
            return self.constant(held)
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
        if held.layout is not torch.strided or held.is_meta or held.numel() > SMALL:
            return "constant", self.itself(held), held._version, kind
        return "constant", np.asarray(array_of(held)).tobytes(), held.stride(), kind


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
    """Names and values that a class has for its objects, methods apart."""
    if _library(kind):
        return []
    methods = (types.FunctionType, property, staticmethod, classmethod, types.MemberDescriptorType)
    held = ((k, v) for k, v in vars(kind).items() if not k.startswith("__"))
    return [x for k, v in held if not isinstance(v, methods) for x in (k, v)]


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
