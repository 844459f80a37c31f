"""How far two lists of arrays are apart, by what rounding explains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tojax.torch.engine.callback import to_numpy

CLOSE = 1e-4  # of the largest value, in 32 bits
ROUNDED = "is off by"  # which precision may explain, and no other difference
ENDLESS = 1e30  # what masks are filled with counts as infinite


def arrays_of(tensors: list[torch.Tensor]) -> list[np.ndarray]:
    """The same in numpy."""
    return [_plain(to_numpy(x.detach())) for x in tensors]


def _plain(x: Any) -> np.ndarray:
    """An array of the widest type of its kind."""
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        return x.astype(np.int64)
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def tolerance(tensors: list[torch.Tensor]) -> float:
    """What rounding explains of a model whose numbers these are, of its largest value."""
    kinds = {x.dtype for x in tensors if x.is_floating_point()}
    return max([CLOSE, *(16 * torch.finfo(x).eps for x in kinds)])


def apart(got: list, want: list[np.ndarray], close: float, least: float = 1e-6,
          exact: Callable[[], list] | None = None) -> str:  # fmt: skip
    """What differs first, in words; "" where nothing does.

    ``exact()`` gives the same in 64 bits: where torch itself is as far from that, all is well.
    """
    if len(got) != len(want):
        return f"{len(got)} arrays, torch has {len(want)}"
    truth: list | None = None
    for i, (one, other) in enumerate(zip(got, want)):
        if said := _one(one, other, close, least):
            if said.startswith(ROUNDED) and exact is not None and truth is None:
                truth = _tried(exact)
            if truth and len(truth) == len(want) and _as_far(_plain(one), other, truth[i]):
                continue
            return f"array {i} {said}"
    return ""


def _one(got: Any, want: np.ndarray, close: float, least: float) -> str:
    got = _plain(got)
    if got.shape != want.shape:
        return f"has the shape {got.shape}, torch's {want.shape}"
    if not want.size:
        return ""
    if want.dtype.kind == "i":
        return f"differs in {(got != want).sum()} whole numbers" if (got != want).any() else ""
    if got.dtype.kind == "i":
        return "holds whole numbers, torch's does not"
    endless = ~(np.abs(want) < ENDLESS)
    signs = lambda x: np.where(np.isnan(x), 2, np.sign(x.real))[endless]
    if (~(np.abs(got) < ENDLESS) != endless).any() or (signs(got) != signs(want)).any():
        return "is infinite, or no number, in other places"
    off = np.abs(got[~endless] - want[~endless]).max(initial=0)
    most = max(np.abs(want[~endless]).max(initial=0), least)
    return f"{ROUNDED} {off / most:.1e} of its largest value" if off > close * most else ""


def _tried(exact: Callable[[], list]) -> list:
    try:
        return exact()
    except Exception:  # the module insists on its own precision
        return []


def _as_far(got: np.ndarray, want: np.ndarray, truth: np.ndarray) -> bool:
    """Whether torch is as far from the truth as this is."""
    if not got.shape == want.shape == truth.shape or not np.isfinite(truth).all():
        return False
    return bool(np.abs(got - truth).max() <= 4 * np.abs(want - truth).max())
