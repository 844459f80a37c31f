"""Differences of arrays, in the figures that a report shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np


class Error(NamedTuple):
    """How far values are from others.

    Attributes:
      absolute: the largest difference.
      relative: the largest difference, in parts of the largest value.
      cosine: of the angle between the two, 1 for the same direction.
      ulps: the largest difference in steps of the dtype at the largest value.
      rms: the root of the mean square of the differences.
    """

    absolute: float
    relative: float
    cosine: float
    ulps: float
    rms: float


def error(values: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Error:
    """Returns how far ``values`` are from ``expected``, arrays of the same shapes; equal infinities
    and NaNs are equal.

    Example:
      >>> error([np.float32([1, 2])], [np.float32([1, 2.5])]).absolute
      0.5
    """
    dtype = values[0].dtype
    a, b = (_flat(x) for x in (values, expected))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(same, 0.0, np.abs(a - b))
    finite = np.isfinite(a) & np.isfinite(b)
    difference[~finite & ~same] = np.inf
    scale = float(np.abs(b[finite]).max(initial=0.0))
    largest = float(difference.max(initial=0.0))
    norms = np.linalg.norm(a[finite]) * np.linalg.norm(b[finite])
    cosine = float(a[finite] @ b[finite] / norms) if norms else 1.0
    step = _step(dtype, scale)
    rms = float(np.sqrt(np.mean(difference**2))) if difference.size else 0.0
    return Error(largest, largest / scale if scale else largest, cosine, largest / step, rms)


def _flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return (
        np.concatenate([np.asarray(x, np.float64).ravel() for x in arrays])
        if arrays
        else np.zeros(0)
    )


def _step(dtype: np.dtype, scale: float) -> float:
    """Returns the distance of two numbers of a dtype at this size."""
    information = ml_dtypes.finfo(dtype)
    return float(information.eps) * max(
        2.0 ** np.floor(np.log2(scale)) if scale else 0.0, float(information.tiny)
    )


def rms(arrays: Sequence[np.ndarray]) -> float:
    """Returns the root of the mean square of the finite values."""
    flat = _flat(arrays)
    flat = flat[np.isfinite(flat)]
    return float(np.sqrt(np.mean(flat**2))) if flat.size else 0.0
