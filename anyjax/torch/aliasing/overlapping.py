"""Writes to tensors whose elements share memory, as ``expand`` makes them, are refused; so are
those through overlapping windows, of ``unfold`` and ``as_strided``.

torch refuses most of them itself. Functionalization would add up what is written to the elements of
one place: where infinity or NaN is overwritten, NaN.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch

from anyjax.errors import Unsupported
from anyjax.torch.aliasing.no_grad_views import OWN, functional, of_one_memory
from anyjax.torch.core import diagnostics, sizes

ONE = {"expand", "expand_as", "broadcast_to"}
MAKERS = ONE | {"broadcast_tensors", "meshgrid", "unfold", "as_strided"}
FEW = 1 << 16  # elements whose places are listed


class Expanded:
    """The expanded tensors of a trace, and views of them."""

    def __init__(self):
        self.known: dict[int, torch.Tensor] = {}

    def plain(self, func, args, kwargs) -> tuple[Any, tuple, dict]:
        """Returns the call, or one of ``view`` where no element is repeated: that may be written
        to.
        """
        if getattr(func, "__name__", "") in ONE and functional(args[0]):
            out = func(*args, **kwargs)
            if not overlaps(out) and sizes.count(out.shape) == sizes.count(args[0].shape):
                return torch.Tensor.view, (args[0], out.shape), {}
        return func, args, kwargs

    def note(self, func, args, out) -> None:
        """Keeps what ``func`` made, if elements of it share memory."""
        of_expanded = bool(args) and id(args[0]) in self.known
        if not of_expanded and getattr(func, "__name__", "") not in MAKERS:
            return
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if functional(x) and (overlaps(x) or (of_expanded and of_one_memory(x, args[0]))):
                self.known[id(x)] = x

    def check(self, func, tensor: torch.Tensor) -> None:
        """Raises Unsupported where ``func``, a write, would write to one of them."""
        if self.known and id(tensor) in self.known and func.__name__ not in OWN:
            raise Unsupported(
                f"{func.__name__} of an expanded tensor, of windows that overlap, or a view",
                where=diagnostics.where(),
                why="several of its elements are one in memory",
                do="write to the tensor itself, or to a clone: x.expand(...).clone()",
            )


def overlaps(tensor: torch.Tensor) -> bool:
    """Returns whether several elements have one place in memory."""
    most = lambda numbers: (sizes.limits(n)[1] for n in numbers)
    axes = [(step, n) for n, step in zip(most(tensor.shape), most(tensor.stride())) if n > 1]
    reach, suspect = 0, False
    for step, n in sorted(axes):
        suspect, reach = suspect or step <= reach, reach + (n - 1) * step
    if not suspect or math.prod(n for _, n in axes) > FEW:
        return suspect
    places = functools.reduce(np.add.outer, [np.arange(n) * step for step, n in axes])
    return np.unique(places).size < places.size
