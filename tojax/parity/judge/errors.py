"""Differences of arrays, in the figures that a report shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Error:
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
    cosine = _cosine(a[finite], b[finite])
    step = _step(dtype, scale)
    rms = _root_mean_square(difference) if difference.size else 0.0
    return Error(largest, largest / scale if scale else largest, cosine, largest / step, rms)


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Returns the cosine of the angle between two vectors, 1 beside a zero."""
    a, b = (x / (np.abs(x).max(initial=0.0) or 1.0) for x in (a, b))  # masks hold the largest float
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norms if norms else 1.0


def _flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return (
        np.concatenate([np.asarray(x, np.float64).ravel() for x in arrays])
        if arrays
        else np.zeros(0)
    )


def _step(dtype: np.dtype, scale: float) -> float:
    """Returns the distance of two numbers of a dtype at this size."""
    information = ml_dtypes.finfo(dtype)
    power = math.ldexp(1.0, math.frexp(scale)[1] - 1) if scale else 0.0
    return float(information.eps) * max(power, float(information.tiny))


def rms(arrays: Sequence[np.ndarray]) -> float:
    """Returns the root of the mean square of the finite values."""
    flat = _flat(arrays)
    flat = flat[np.isfinite(flat)]
    return _root_mean_square(flat) if flat.size else 0.0


def _root_mean_square(x: np.ndarray) -> float:
    largest = float(np.abs(x).max(initial=0.0)) or 1.0
    return largest if largest == np.inf else largest * float(np.sqrt(np.mean((x / largest) ** 2)))
