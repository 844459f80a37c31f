"""Comparison of two lists of arrays, within the tolerance of rounding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import torch

from anyjax.compare.differences import apart
from anyjax.compare.sides import torch_side
from anyjax.torch.engine.callback import to_numpy

CLOSE = 1e-4  # of the largest value, in 32 bits
OFF_BY = "is off by"  # which precision may explain, and no other difference
INFINITE = 1e30  # what masks are filled with counts as infinite


def arrays_of(tensors: list[torch.Tensor]) -> list[np.ndarray]:
    """Returns the tensors in numpy; integers as JAX has them, with fewer bits."""
    return [
        _widest(torch_side.to_numpy(x) if x.dtype.is_floating_point else to_numpy(x))
        for x in tensors
    ]


def _widest(x: object) -> np.ndarray:
    """Returns an array of the widest type of its kind."""
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        return x.astype(np.int64)
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def tolerance(tensors: list[torch.Tensor]) -> float:
    """Returns the error, relative to the largest value, that rounding of these dtypes explains."""
    kinds = {x.dtype for x in tensors if x.is_floating_point()}
    return max([CLOSE, *(16 * torch.finfo(x).eps for x in kinds)])


def first_mismatch(got: list, want: list[np.ndarray], close: float, least: float = 1e-6,
          exact: Callable[[], list] | None = None) -> str:  # fmt: skip
    """Describes the first difference; "" where there is none.

    ``exact()`` computes the same in 64 bits; a difference passes where torch is as far from that.
    """
    if len(got) != len(want):
        return f"{len(got)} arrays, torch has {len(want)}"
    truth: list | None = None
    for i, (x, expected) in enumerate(zip(map(_widest, got), want)):
        mismatch = _mismatch(x, expected, close, least)
        if mismatch.startswith(OFF_BY) and exact is not None and truth is None:
            truth = []
            with contextlib.suppress(Exception):  # the module insists on its own precision
                truth = exact()
        if mismatch.startswith(OFF_BY) and truth and len(truth) == len(want):
            off, of_torch = apart(x, truth[i]), apart(expected, truth[i])
            mismatch = "" if off <= 4 * of_torch < np.inf else mismatch
        if mismatch:
            return f"array {i} {mismatch}"
    return ""


def _mismatch(got: np.ndarray, want: np.ndarray, close: float, least: float) -> str:
    if got.shape != want.shape:
        return f"has the shape {got.shape}, torch's {want.shape}"
    if want.dtype.kind == "i":
        return f"differs in {(got != want).sum()} whole numbers" if (got != want).any() else ""
    if got.dtype.kind == "i" and want.size:
        return "holds whole numbers, torch's does not"
    off = apart(_with_infinities(got), _with_infinities(want), least)
    if off == np.inf:
        return "is infinite, or no number, in other places"
    return f"{OFF_BY} {off:.1e} of its largest value" if off > close else ""


def _with_infinities(x: np.ndarray) -> np.ndarray:
    """Returns the numbers with those of masks infinite."""
    return np.where(np.abs(x) > INFINITE, np.copysign(np.inf, x.real), x)
