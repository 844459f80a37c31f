"""Operators on torch's own tensors alone, which do not depend on the inputs: torch computes them,
and the program has their results as constants, unless these are large.
"""

from __future__ import annotations

import math
import weakref

import torch

from anyjax.torch.core import private, sizes
from anyjax.torch.core.call import Call
from anyjax.torch.core.lifting import CONSTANTS, HUGE
from anyjax.torch.core.tensor import JaxTensor

aten = torch.ops.aten

LARGE = 1 << 16  # elements; larger results of factories are computed in the program, not stored;
# so are ranges beyond HUGE, and what elementwise operators make of smaller constants, as masks are
UNINITIALIZED = {aten.empty, aten.empty_like, aten.empty_strided, aten.empty_permuted}
UNINITIALIZED |= {aten.new_empty, aten.new_empty_strided}  # as constants, zeros: not old memory


def constant(op, call: Call, args, kwargs):
    """torch's own result, of constants."""
    if call.signature.writes:  # by a decomposition, to a constant that may be known already
        CONSTANTS.clear()
    if op is aten.view.default and not args[0].is_contiguous():
        op = aten.reshape.default  # a write, undone through a view: any order
    with private.DisableTorchFunction():  # dispatched from C++, as vmap does
        out = op(*args, **kwargs)
        out = out.zero_() if op.overloadpacket in UNINITIALIZED else out
    if JaxTensor.living is not None and isinstance(out, torch.Tensor):
        JaxTensor.living.append(weakref.ref(out))
    return out


def outgrown(call: Call, args) -> bool:
    """Returns whether an operator of constants makes one that is large and larger than what it is
    made of: the program computes it.
    """
    if call.factory:
        return call.size(args) > LARGE or (call.range and length(*args) > HUGE)
    if not call.elementwise or call.row is None:
        return False
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    if math.prod(x.numel() for x in tensors) <= HUGE:  # most: quickly told
        return False
    count = math.prod(torch.broadcast_shapes(*(x.shape for x in tensors)))
    return count > HUGE and max(map(memory, tensors)) < count


def length(first: float, end: float | None = None, step: float = 1) -> float:
    """Of a range."""
    return first if end is None else (end - first) / step


def memory(x: torch.Tensor) -> int:
    """Elements that a constant has in memory; an expanded one has fewer than its shape."""
    return math.prod(n for n, stride in zip(x.shape, x.stride()) if stride)


def size_like(args) -> int:
    """Returns how many elements a factory makes that takes its dtype, or its shape too, from a
    tensor.
    """
    has_shape = len(args) > 1 and isinstance(args[1], (list, tuple))
    shape = args[1] if has_shape else args[0].shape
    return LARGE + 1 if sizes.symbolic(shape) else sizes.count(shape)
