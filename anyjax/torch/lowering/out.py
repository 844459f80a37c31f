"""``out=`` of composite operators: torch's C++ would write to it by operators that are not served,
or to memory that there is none of. The result is computed without it, and copied.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from anyjax.errors import Unsupported
from anyjax.torch.core import diagnostics, private
from anyjax.typing import PyTree

KEYS = private.COMPOSITE, private.DENSE
PYTHON = "torch.nn.functional", "torch.functional"


@lru_cache(4096)
def is_composite(func: Callable, out: bool = False) -> bool:
    """Returns whether a function of torch's is an operator that C++ makes of others; of ``out``,
    whether its form that writes is one.
    """
    if getattr(func, "__module__", "") in PYTHON:
        return True
    packet: Any = getattr(torch.ops.aten, getattr(func, "__name__", ""), None)
    for overload in packet.overloads() if hasattr(packet, "overloads") else ():
        op = getattr(packet, overload)
        writes = any(a.is_out for a in op._schema.arguments)
        if (writes or not out) and private.has_kernel(op, *(KEYS if out else KEYS[:1])):
            return True
    return False


def into(func: Callable, args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Returns ``out``, with the results of the function.

    Raises:
      Unsupported: it cannot hold them.
    """
    out = kwargs.pop("out")
    if isinstance(out, torch.Tensor) and not any(isinstance(x, torch.Tensor) for x in args):
        kwargs.setdefault("dtype", out.dtype)  # of a factory
    results = func(*args, **kwargs)
    several = isinstance(out, (list, tuple))
    for target, result in zip(out if several else [out], results if several else [results]):
        fits = torch.can_cast(result.dtype, target.dtype)
        if not fits or (target.numel() and target.shape != result.shape):
            text = lambda x: f"{str(x.dtype).removeprefix('torch.')}{[*x.shape]}"
            raise Unsupported(
                f"{func.__name__} gives {text(result)}, which an out of {text(target)} cannot hold",
                where=diagnostics.where(),
                why="torch, too, would refuse it, or resize the tensor with a warning",
                do="give an out of the result's shape and dtype",
            )
        if target.shape != result.shape:
            target.resize_(result.shape).zero_()  # no old memory
        target.copy_(result)
    return type(results)(out) if several else out
