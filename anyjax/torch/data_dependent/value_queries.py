"""Answers to code that asks for values, or for their number, which only the program knows.

Handlers of the function mode: each gives a result, or NotImplemented to let the call pass.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
from types import FrameType
from typing import Any

import jax
import numpy as np
import torch

from anyjax.torch.core import dispatcher
from anyjax.torch.core.lifting import array_of, inner, is_traced, untransformed
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.data_dependent import assertions, overflow_guards, split_by_values
from anyjax.torch.data_dependent.traced_index import GET, traced_index

TENSOR_SPLIT = {torch.tensor_split, torch.Tensor.tensor_split}
SHOWS = {torch.Tensor.__format__, torch.Tensor.__repr__}
EQUAL = {torch.equal, torch.Tensor.equal}
ASKS = {torch.Tensor.__bool__, torch.Tensor.item}
VALUES = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__}
READS = VALUES | {torch.Tensor.data_ptr, torch.Tensor.untyped_storage, torch.Tensor.storage}
READS |= {torch.Tensor.share_memory_, torch.Tensor.__dlpack__, torch.Tensor.__reduce_ex__}


def sizes(mode, func, args, kwargs) -> Any:
    """``tolist()`` of a vector of integers."""
    tensor = args[0]
    vector = tensor.dim() == 1 and tensor.dtype in (torch.int64, torch.int32)
    if not vector or not is_traced(tensor):
        return NotImplemented
    error = lambda: mode.trace.data_dependent("Tensor.tolist", [inner(tensor)])
    mode.trace.unknown.append(split_by_values.Sizes(tensor, error))
    return mode.trace.unknown[-1]


def values(mode, func, args, kwargs) -> Any:
    """Returns the values of a tensor as Python objects, or the memory of a constant."""
    tensor = inner(untransformed(args[0]))
    if not isinstance(tensor, JaxTensor):
        with dispatcher.plain():
            out = func(tensor, *args[1:], **kwargs)
        return args[0] if out is tensor else out
    if isinstance(tensor.array, jax.core.Tracer) or func not in VALUES:
        raise mode.trace.data_dependent(f"Tensor.{func.__name__}", [tensor])
    array = np.asarray(tensor.array)
    return array.tolist() if func is torch.Tensor.tolist else array


def ask(mode, func, args, kwargs) -> Any:
    """``bool(x)``, which is answered, and ``x.item()``, which is the number itself, unknown."""
    tensor = args[0]
    if mode.guard is not None or (tensor.numel() != 1 and func is torch.Tensor.item):
        return NotImplemented
    if not is_traced(tensor):
        return NotImplemented
    if func is torch.Tensor.item and tensor.dtype is not torch.bool:
        with mode:
            return tensor.detach().reshape(())
    answer = condition(mode, func, tensor, sys._getframe(2))
    return NotImplemented if answer is None else answer


def turns(mode, func, args, kwargs) -> Any:
    """``range(n)`` of a loop, which becomes one of the program."""
    path = mode.trace.path
    if path is None or not is_traced(args[0]) or args[0].numel() != 1:
        return NotImplemented
    from anyjax.torch.data_dependent import statements  # for few programs

    place = statements.over_a_range(sys._getframe(2), mode.trace.notes)
    return path.stop(statements.Needs(place)) if place else NotImplemented


def equal(mode, func, args, kwargs) -> Any:
    """``torch.equal(x, y)``, which is a condition of tensors of one shape."""
    first, second = args
    if not (is_traced(first) or is_traced(second)) or first.shape != second.shape:
        return NotImplemented if first.shape == second.shape else False
    from anyjax import jaxprs  # for few programs

    if jaxprs.same_values(array_of(first), array_of(second)):
        return True
    with mode:
        same = (first == second).all()
    answer = condition(mode, func, same, sys._getframe(2))
    return NotImplemented if answer is None else answer


def condition(mode, func, asked: torch.Tensor, frame: FrameType) -> bool | None:
    """Answers a traced condition by the first policy that applies: a check is assumed to pass, of a
    repair both values are selected from, else the code is forked.
    """
    if func is torch.Tensor.__bool__:
        passing = assertions.passing_at(frame)
        if passing is not None:
            assertions.left_out(4)
            return passing
        mode.guard = overflow_guards.guard_at(frame, asked)
        if mode.guard is not None:
            return mode.guard.entered
    module = f"{frame.f_globals.get('__name__')}."
    if module.startswith("torch.optim.") and "!= 0" in linecache.getline(*line_of(frame)):
        return True  # whether there is momentum, or decay: with one of 0 it is the same
    is_torchs = module.startswith("torch.")  # see assertions.py
    if is_torchs or mode.trace.path is None or asked.numel() != 1:
        return None
    value = inner(asked)
    with contextlib.suppress(jax.errors.TracerBoolConversionError):
        return bool(value.array)  # known where it is only differentiated
    from anyjax.torch.data_dependent import statements  # for few programs

    path, error = mode.trace.path, mode.trace.data_dependent("bool", [value])
    joins = mode.trace.within or len(path.asked) >= statements.FEW
    place = statements.asking(frame, mode.trace.notes, joins, path.full)
    return path.stop(statements.Needs(place)) if place else path.answer(value.array, error)


def line_of(frame: FrameType) -> tuple[str, int]:
    """(file, line) that runs."""
    return frame.f_code.co_filename, frame.f_lineno


def repair(mode, func, args, kwargs) -> Any:
    """Returns the body of an ``if`` on a traced condition, a clamp."""
    if mode.guard is None or func.__name__ == "__get__":
        return NotImplemented
    guard, mode.guard = mode.guard, None
    if func not in overflow_guards.CLAMPS:
        raise mode.trace.data_dependent("bool", [inner(guard.condition)])
    with mode:
        return guard.select(func, args, kwargs)


def unsized(mode, func, args, kwargs) -> Any:
    """Returns a call that concerns sizes of groups that only the program knows."""
    unknown = split_by_values.concerns(args, kwargs) if mode.trace.unknown else None
    if unknown is None:
        return NotImplemented
    return split_by_values.serve(mode, func, args, kwargs, unknown)


def show(mode, func, args, kwargs) -> Any:
    """Returns a traced tensor in a message, without a number."""
    if not is_traced(args[0]):
        return NotImplemented
    return f"<{args[0].dtype} {list(args[0].shape)}, traced>"


def split(mode, func, args, kwargs) -> Any:
    """``tensor_split`` at the places that a tensor names."""
    if len(args) < 2 or not isinstance(args[1], torch.Tensor):
        return NotImplemented
    at = values(mode, torch.Tensor.tolist, args[1:2], {})
    return mode.__torch_function__(func, (), (args[0], at, *args[2:]), kwargs)


def is_number(index: object) -> bool:
    """Returns whether an index is a single traced bool."""
    if not isinstance(index, torch.Tensor) or index.dtype is not torch.bool:
        return False
    return not index.dim() and is_traced(index)


def pick(mode, func, args, kwargs) -> Any:
    """``x[i]`` where ``i`` is a traced integer."""
    if not traced_index(args):
        return NotImplemented
    with mode:
        return (mode.picked.get if func is GET else mode.picked.put)(*args)
