"""Comparison of two lists of arrays, within the tolerance of rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from anyjax.torch.engine.callback import to_numpy

CLOSE = 1e-4  # of the largest value, in 32 bits
OFF_BY = "is off by"  # which precision may explain, and no other difference
INFINITE = 1e30  # what masks are filled with counts as infinite


def arrays_of(tensors: list[torch.Tensor]) -> list[np.ndarray]:
    """Returns the tensors in numpy."""
    return [_widest(to_numpy(x.detach())) for x in tensors]


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
    for i, (got_array, want_array) in enumerate(zip(got, want)):
        if mismatch := _mismatch(got_array, want_array, close, least):
            if mismatch.startswith(OFF_BY) and exact is not None and truth is None:
                truth = _exact_or_nothing(exact)
            if (
                truth
                and len(truth) == len(want)
                and _is_torch_as_far(_widest(got_array), want_array, truth[i])
            ):
                continue
            return f"array {i} {mismatch}"
    return ""


def _mismatch(got: object, want: np.ndarray, close: float, least: float) -> str:
    got = _widest(got)
    if got.shape != want.shape:
        return f"has the shape {got.shape}, torch's {want.shape}"
    if not want.size:
        return ""
    if want.dtype.kind == "i":
        return f"differs in {(got != want).sum()} whole numbers" if (got != want).any() else ""
    if got.dtype.kind == "i":
        return "holds whole numbers, torch's does not"
    infinite = ~(np.abs(want) < INFINITE)
    signs = lambda x: np.where(np.isnan(x), 2, np.sign(x.real))[infinite]
    if (~(np.abs(got) < INFINITE) != infinite).any() or (signs(got) != signs(want)).any():
        return "is infinite, or no number, in other places"
    largest = max(np.abs(want[~infinite]).max(initial=0), least)
    off = np.abs(got[~infinite] - want[~infinite]).max(initial=0) / largest
    return f"{OFF_BY} {off:.1e} of its largest value" if off > close else ""


def _exact_or_nothing(exact: Callable[[], list]) -> list:
    try:
        return exact()
    except Exception:  # the module insists on its own precision
        return []


def _is_torch_as_far(got: np.ndarray, want: np.ndarray, truth: np.ndarray) -> bool:
    """Returns whether torch is about as far from the exact values."""
    if not got.shape == want.shape == truth.shape or not np.isfinite(truth).all():
        return False
    return bool(np.abs(got - truth).max() <= 4 * np.abs(want - truth).max())
