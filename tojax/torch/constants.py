"""What torch code does to tensors above functionalization that the dispatcher cannot serve.

Reads of memory (``tolist``, ``numpy``) give the values of constants and DataDependent for traced
tensors; lists that hold tensors are stacked; torch tensors from outside the trace become constants
that may be written to; a write inside ``no_grad`` changes a value and leaves its gradient alone, as
it does in torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from torch._functorch.autograd_function import custom_function_call
from torch._ops import HigherOrderOperator
from torch.overrides import TorchFunctionMode

from tojax.errors import DataDependent
from tojax.torch import (
    autocast,
    blame,
    checks,
    guards,
    in_place,
    masked,
    nested,
    places,
    ragged,
    rows,
)
from tojax.torch.control import higher_order
from tojax.torch.detached import DETACH, Detached, functional
from tojax.torch.expanded import Expanded
from tojax.torch.indexing import GET, SET, Picked, traced_index
from tojax.torch.tensor import JaxTensor

SELECTS = masked.CHOOSE | places.MAKERS
SPLITS = {torch.tensor_split, torch.Tensor.tensor_split}
SHOWS = {torch.Tensor.__format__, torch.Tensor.__repr__}
WRITES = {"__setitem__", "__set__", "__iadd__", "__isub__", "__imul__", "__imatmul__", "__idiv__"}
WRITES |= {"__itruediv__", "__ifloordiv__", "__imod__", "__ipow__", "__iand__", "__ior__"}
WRITES |= {"__ixor__", "__ilshift__", "__irshift__"}
ASKS = {torch.Tensor.__bool__, torch.Tensor.item}
READS = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__}


class ConstantsMode(TorchFunctionMode):
    """See the module's docstring; ``inner`` unwraps a functional tensor, ``lift`` wraps."""

    def __init__(self, trace, inner, lift):
        super().__init__()
        self.trace, self.inner, self.lift = trace, inner, lift
        self.picked = Picked(inner)
        self.detached, self.expanded = Detached(), Expanded()
        self.guard: guards.Guard | None = None
        self.outside: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        func = in_place.known(func)
        self.trace.autocast = autocast.active()
        if not torch.is_grad_enabled():
            self.detached.renew((*args, *kwargs.values()))
        if func is torch.Tensor.tolist and self.may_be_sizes(args[0]):
            return self.listed(args[0])
        if func in READS:
            return self.read(func, args, kwargs)
        if func in ASKS and self.traced(args[0]) and self.guard is None:
            answer = self.answer(func, args[0], sys._getframe(1))
            if answer is not None:
                return answer
        if self.guard is not None and func.__name__ != "__get__":
            guard, self.guard = self.guard, None
            return self.repaired(guard, func, args, kwargs)
        if self.trace.sizes:
            out = self.unsized(func, args, kwargs)
            if out is not NotImplemented:
                return out
        if func in SHOWS and self.traced(args[0]):
            return f"<{args[0].dtype} {list(args[0].shape)}, traced>"  # in a message, no number
        if isinstance(func, HigherOrderOperator) and not vmapped_function(func):
            return higher_order(self, func, args, kwargs)
        if func is torch.nn.functional.dropout and not _argument(args, kwargs, 2, "training", True):
            return args[0]  # the input itself, which later writes reach
        if func in SPLITS and len(args) > 1 and isinstance(args[1], torch.Tensor):
            at = self.read(torch.Tensor.tolist, args[1:2], {})
            args = (args[0], at, *args[2:])
        if func in nested.MAKERS and args and nested.holds_tensors(args[0]):
            with self:
                return nested.stacked(*args, **kwargs)
        for value in args:
            if isinstance(value, torch.Tensor) and not torch._is_functional_tensor(value):
                args = tuple(self.constant(a) if isinstance(a, torch.Tensor) else a for a in args)
                break
        if func in (GET, SET):
            with self:
                args = (args[0], nested.index_of(args[1]), *args[2:])
        if func in SELECTS and (some := self.selected(func, args, kwargs)) is not None:
            return some
        if func in (GET, SET) and traced_index(args, self.inner):
            with self:
                return (self.picked.get if func is GET else self.picked.put)(*args)
        out = self.call(func, args, kwargs)
        if self.picked:
            with self:
                self.picked.sync()
        return out

    def unsized(self, func, args, kwargs) -> Any:
        """A call that concerns sizes, or rows of a number, that only the program knows."""
        unknown = ragged.concerns(args, kwargs)
        if unknown is not None:
            return ragged.serve(self, func, args, kwargs, unknown)
        some = masked.concerns(args, kwargs)
        if some is None:
            return NotImplemented
        with self:
            return rows.serve(func, args, kwargs, some)

    def answer(self, func, condition, frame) -> bool | checks.Compared | None:
        """What a traced condition is taken for: where it matters, for this run of the code."""
        asked = func is torch.Tensor.__bool__
        passing = checks.passing_at(frame) if asked else checks.compared_at(frame)
        if passing is not None:
            checks.left_out(3)
            return passing
        if asked:
            self.guard = guards.guard_at(frame, condition)
            if self.guard is not None:
                return self.guard.entered
        elif condition.dtype is not torch.bool:
            return None
        own = f"{frame.f_globals.get('__name__')}.".startswith("torch.")  # see checks.py
        if own or self.trace.ways is None or condition.numel() != 1:
            return None
        held = self.inner(condition)
        try:
            return bool(held.array)  # known where it is only differentiated
        except jax.errors.TracerBoolConversionError:
            return self.trace.ways.answer(held.array, self.trace.data_dependent("bool", [held]))

    def repaired(self, guard: guards.Guard, func, args, kwargs) -> Any:
        """The body of an ``if`` on a traced condition, a clamp."""
        if func not in guards.CLAMPS:
            raise self.trace.data_dependent("bool", [self.inner(guard.condition)])
        with self:
            return guard.select(func, args, kwargs)

    def call(self, func, args, kwargs) -> Any:
        """The function itself."""
        func, args, kwargs = self.expanded.plain(func, args, kwargs)
        if args and _writes(func):
            self.expanded.check(func, args[0])
        if args and _writes(func) and self.detached.writable(func, args[0]):
            target = self.detached.original(args[0])
            with torch.no_grad():
                self.write(func, (target, *args[1:]), kwargs)
            return args[0]
        out = self.called(func, args, kwargs)
        if func in DETACH and functional(args[0]):
            held = self.inner(out)
            alone = held.alone() if isinstance(held, JaxTensor) else held.clone()
            out = self.lift(alone)
            self.picked.twin(self.detached.held(out), self.detached.held(args[0]))
            return out
        self.detached.note(func, args, kwargs, out)
        self.expanded.note(func, args, out)
        return out

    def called(self, func, args, kwargs) -> Any:
        """The function, a write inside ``no_grad`` as one."""
        if not torch.is_grad_enabled() and args and _writes(func):
            return self.write(func, args, kwargs)
        if not torch.is_grad_enabled() and functional(kwargs.get("out")):
            return self.into(func, args, kwargs)
        return func(*args, **kwargs)

    def into(self, func, args, kwargs) -> Any:
        """``out=`` inside ``no_grad``: the target keeps its gradient."""
        out = kwargs["out"]
        found = func(*args, **{k: v for k, v in kwargs.items() if k != "out"})
        if found.shape != out.shape or not torch.can_cast(found.dtype, out.dtype):
            return func(*args, **kwargs)  # torch resizes, or raises
        return self.call(torch.Tensor.copy_, (out, found), {})

    def constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor from outside, the same functional one each time it is met."""
        ours = isinstance(tensor, JaxTensor) or torch._is_functional_tensor(tensor)
        if ours or torch._C._functorch.maybe_get_level(tensor) != -1:
            return tensor
        if id(tensor) not in self.outside:
            self.outside[id(tensor)] = tensor, self.lift(tensor.detach())
        return self.outside[id(tensor)][1]

    def read(self, func, args, kwargs) -> Any:
        """The values of a tensor as Python objects."""
        tensor = self.inner(args[0])
        if not isinstance(tensor, JaxTensor):
            return func(tensor, *args[1:], **kwargs)
        if self.traced(tensor):
            raise self.trace.data_dependent(f"Tensor.{func.__name__}", [tensor])
        values = np.asarray(tensor.array)
        return values.tolist() if func is torch.Tensor.tolist else values

    def listed(self, tensor) -> ragged.Sizes:
        """``tensor.tolist()`` of sizes."""
        error = lambda: self.trace.data_dependent("Tensor.tolist", [self.inner(tensor)])
        self.trace.sizes.append(ragged.Sizes(tensor, error))
        return self.trace.sizes[-1]

    def may_be_sizes(self, tensor) -> bool:
        """Whether this is a vector of integers that only the compiled program knows."""
        vector = tensor.dim() == 1 and tensor.dtype in (torch.int64, torch.int32)
        return vector and self.traced(tensor)

    def chosen(self, tensor, index) -> masked.Masked:
        """``tensor[mask]``."""
        mask = masked.leading(index)
        with self:
            self.trace.sizes.append(masked.chosen(tensor, mask, self.unknown(mask)))
        return self.trace.sizes[-1]

    def selected(self, func, args, kwargs) -> Any:
        """``tensor[mask]`` and ``vector.nonzero()`` of unknown values; None for others."""
        if func in masked.CHOOSE and len(args) == 2 and self.chooses(func, *args):
            return self.chosen(*args)
        vector = len(args) == 1 and args[0].dim() == 1 and not kwargs.keys() - {"as_tuple"}
        if func in places.MAKERS and vector and self.traced(args[0]):
            return self.places(func, args[0], **kwargs)
        return None

    def places(self, func, vector, as_tuple=False) -> Any:
        """``vector.nonzero()``."""
        with self:
            found = places.of(vector, self.unknown(vector))
            self.trace.sizes.append(found)
            return (found,) if as_tuple or func is torch.where else found.like(found.rows[:, None])

    def unknown(self, mask) -> Callable[..., DataDependent]:
        """The error for what needs to know how many rows ``mask`` chooses."""
        place = blame.where()
        return lambda what="a use of x[mask]": self.trace.data_dependent(
            what, [self.inner(mask)], place=place
        )

    def chooses(self, func, tensor, index) -> bool:
        """Whether this is ``tensor[mask]`` with a mask that only the compiled program knows;
        ``masked_select`` aligns a smaller one with the last axes.
        """
        mask = masked.leading(index)
        if mask is None or mask.shape != tensor.shape[: mask.dim()]:
            return False
        return self.traced(mask) and (func is GET or mask.dim() == tensor.dim())

    def traced(self, tensor) -> bool:
        """Whether only the compiled program knows the values."""
        held = self.inner(tensor)
        return isinstance(held, JaxTensor) and isinstance(held.array, jax.core.Tracer)

    def write(self, func, args, kwargs) -> Any:
        """A write that autograd does not see."""
        self.trace.writing = True
        try:
            return func(*args, **kwargs)
        finally:
            self.trace.writing = False


def vmapped_function(func) -> bool:
    """Whether torch itself serves a custom function, which it can inside ``torch.vmap`` alone."""
    levels = torch._C._functorch.get_interpreter_stack() or []
    vmap = torch._C._functorch.TransformType.Vmap
    return func is custom_function_call and all(x.key() == vmap for x in levels)


def _argument(args, kwargs, place: int, name: str, default: Any) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, default)


def _writes(func) -> bool:
    name = getattr(func, "__name__", "")
    inplace = name.endswith("_") and not name.startswith("_")
    return inplace or name in WRITES
