"""Sizes that code takes from values: ``torch.zeros(int(index.max()) + 1)``.

``int(x)`` has to give an integer of Python. The module whose code asks gets another ``int`` for the
run: of a traced tensor it gives a size of the program, for all else it is Python's. Such a size is
within a bound: the limit that is known of the integers (see int64.py), or the number of elements
that a greatest one was taken of, as of graphs in a batch there are at most as many as nodes. That
one is checked; where there are more, floats of the program are NaN.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch

from anyjax.torch.core import current_trace, diagnostics, sizes
from anyjax.torch.core.call import Call
from anyjax.torch.core.lengths import Length
from anyjax.torch.core.lifting import inner, is_traced, untransformed
from anyjax.torch.core.tensor import CountedTensor, JaxTensor
from anyjax.torch.data_dependent import builtin, int64
from anyjax.typing import PyTree

aten = torch.ops.aten

ASKS = {torch.Tensor.__int__, torch.Tensor.__index__}
SIZED = {torch.zeros, torch.ones, torch.empty, torch.full, torch.rand, torch.randn, torch.arange}
METHODS = {torch.Tensor.new_zeros, torch.Tensor.new_ones, torch.Tensor.new_full}
METHODS |= {torch.Tensor.new_empty, torch.Tensor.view, torch.Tensor.reshape, torch.Tensor.expand}
SIZED |= METHODS
GREATEST = {aten.max.default, aten.amax.default}
STEPS = {aten.add.Tensor: 1, aten.sub.Tensor: -1}
KEEPING = int64.MOVES | int64.CASTS


class Most(NamedTuple):
    """How large a number is at most, whether that is proven, and what was added to the greatest of
    so many elements where it is not.
    """

    number: Any
    proven: bool
    step: int = 0


def _is_size(*args: Any) -> bool:
    return len(args) == 1 and isinstance(args[0], torch.SymInt)


class _Kind(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], torch.Tensor) and current_trace.active():
            size = size_of(args[0])
            if size is not None:
                return size
        return args[0] if _is_size(*args) else int(*args, **kwargs)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, (int, torch.SymInt))

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, int)


class Int(int, metaclass=_Kind):
    """Gives sizes of a program for traced tensors, as ``int`` gives numbers."""


builtin.OTHERS["int"] = Int


def ask(mode, func, args, kwargs) -> Any:
    """Ends the run where a module's code is to have the other ``int``."""
    module, trace = sys._getframe(2).f_globals, mode.trace
    if trace.path is None or not builtin.replaceable(module, "int"):
        return NotImplemented
    if not _is_integer(args[0]) or most(inner(args[0])) is None:
        return NotImplemented
    return trace.path.stop(builtin.Needed(module, "int"))


def sized(mode, func, args, kwargs) -> Any:
    """Calls a function of sizes some of which are traced integers."""
    first = int(func in METHODS)
    tensors = []
    for x in args[first:]:  # of most calls none: they pay for no generator
        for y in x if isinstance(x, (list, tuple)) else (x,):
            if isinstance(y, torch.Tensor):
                tensors.append(y)
    if not tensors or not any(_is_integer(x) and size_of(x) is not None for x in tensors):
        return NotImplemented
    with mode:
        args = (*args[:first], *(_with_sizes(x) for x in args[first:]))
        return func(*args, **kwargs)


def _with_sizes(x: PyTree) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)([*map(_with_sizes, x)])
    size = size_of(x) if _is_integer(x) else None
    return x if size is None else size


def _is_integer(x: object) -> bool:
    if not isinstance(x, torch.Tensor) or isinstance(inner(x), CountedTensor):
        return False
    return x.numel() == 1 and x.dtype in int64.INTEGERS and is_traced(x)


def size_of(tensor: torch.Tensor) -> torch.SymInt | None:
    """Returns a traced integer as a size of the program, the same for the same integer; None where
    nothing bounds it.
    """
    trace = current_trace.trace()
    number = inner(untransformed(tensor))
    bound = most(number) if _is_integer(tensor) else None
    if bound is None:
        return None
    if bound.proven and bound.number == 0:
        return sizes.to_torch((0,))[0]
    array = number.array
    if id(array) not in trace.chosen:
        scalar = array.reshape(())
        least = 0 if bound.proven else bound.step - 1  # of no elements there is none
        if trace.conditions is not None:
            fits = True if bound.proven else scalar <= sizes.to_jax(bound.number, as_number=True)
            trace.conditions.append((scalar >= least) & fits)
        place = diagnostics.where()
        most_of = sizes.to_jax(bound.number) - least
        length = Length(scalar - least, most_of, place, (), 0, number.origins)
        trace.chosen[id(array)] = array, trace.lengths.new(length) + least
    return sizes.to_torch((trace.chosen[id(array)][1],))[0]


def most(tensor: torch.Tensor) -> Most | None:
    """Returns how large an integer is at most."""
    limit = int64.limit_of(tensor)
    if limit < int64.UNKNOWN:
        return Most(limit, True)
    call = getattr(tensor, "counts", None)
    if call is None:
        return None
    op, args = call
    if op in GREATEST:
        return Most(args[0].numel() - 1, False)
    operand = most(args[0]) if isinstance(args[0], torch.Tensor) else None
    if operand is None or op not in STEPS:
        return operand
    step = args[1] if isinstance(args[1], int) else None
    if step is None:
        return None
    step = STEPS[op] * step
    return Most(operand.number + step, operand.proven, operand.step + step)


def note(call: Call, args: tuple, out: object) -> None:
    """Keeps what a single integer was computed from."""
    if not isinstance(out, JaxTensor) or out.dim() or out.dtype not in int64.INTEGERS:
        return
    if call.op in STEPS or call.view or call.op.overloadpacket.__name__ in KEEPING:
        out.counts = call.op, args
