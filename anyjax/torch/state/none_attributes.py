"""Attributes that begin as None and that forward itself reads in its next call: ``self.hidden``.

Dropped, they make the next call another one, unlike a tensor that is only left for others to see.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
from collections.abc import Iterator
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import torch

from anyjax.torch.core import current_trace
from anyjax.torch.core.tensor import JaxTensor

LIBRARIES = ("torch", "transformers")  # whose own code sets what it reads first
_OF_LIBRARIES = ContextVar("_OF_LIBRARIES", default=False)


@contextlib.contextmanager
def of_libraries() -> Iterator[None]:
    """Counts those of libraries, too: in steps of a text, the next call goes on with the last."""
    token = _OF_LIBRARIES.set(True)
    try:
        yield
    finally:
        _OF_LIBRARIES.reset(token)


def carried(module: torch.nn.Module, name: str, held: object) -> bool:
    """Returns whether the tensor that came to this place, where None was, is one of those."""
    if not isinstance(held, JaxTensor) or not of_inputs(held):
        return False
    path = name.split(".")
    while len(path) > 1 and path[0] in module._modules:
        child = module._modules[path.pop(0)]
        assert child is not None
        module = child
    kind: Any = type(module)
    is_users = kind.__module__.partition(".")[0] not in LIBRARIES
    return (is_users or _OF_LIBRARIES.get()) and loads(kind, path[0])


def of_inputs(held: JaxTensor) -> bool:
    """Returns whether it was computed from an argument; weights give new ones."""
    trace = current_trace.trace()
    count = len(trace.inputs) - 2  # before the parameters and the state
    return bool(held.origins >> 1 & ((1 << count) - 1))


@lru_cache(4096)
def loads(kind: type, attribute: str) -> bool:
    """Returns whether a method of the class, its ``__init__`` apart, reads the attribute."""
    classes = (x for x in kind.__mro__ if x not in (torch.nn.Module, object))
    methods = (f for x in classes for n, f in vars(x).items() if n != "__init__")
    functions = [f for f in methods if inspect.isfunction(f)]
    codes = [(inspect.unwrap(f) or f).__code__ for f in functions]  # some have None for __wrapped__
    return any(
        step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval == attribute
        for code in codes
        for step in dis.get_instructions(code)
    )
