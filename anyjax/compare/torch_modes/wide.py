"""Torch code in 64 bits: the judge of both sides."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

WIDE = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
}
CASTS = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}


def _grouped_mm(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor, **_: Any) -> torch.Tensor:
    """Multiplies groups of rows by their own matrices, as torch's kernel does in 32 bits."""
    ends = [0, *offs.tolist()]
    rows = [a[start:end] @ b[i] for i, (start, end) in enumerate(itertools.pairwise(ends))]
    return torch.cat([*rows, a.new_zeros(len(a) - ends[-1], b.shape[-1])])


# Functions without a kernel of 64 bits.
NARROW_ALONE: dict[Callable, Callable] = {
    getattr(home, name): _grouped_mm
    for home, name in ((torch, "_grouped_mm"), (torch.nn.functional, "grouped_mm"))
    if hasattr(home, name)
}


class Wide(TorchFunctionMode):
    """Gives 64 bits to code that asks for a narrower floating-point dtype by name."""

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        widen = lambda x: WIDE.get(x, x) if isinstance(x, torch.dtype) else x
        if func in CASTS:
            func = torch.Tensor.double
        func = NARROW_ALONE.get(func, func)
        return func(*map(widen, args), **{k: widen(v) for k, v in (kwargs or {}).items()})


@contextlib.contextmanager
def wide() -> Iterator[None]:
    """Runs torch code in 64 bits; its default dtype is that of the process before and after."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Wide():
            yield
    finally:
        torch.set_default_dtype(default)
