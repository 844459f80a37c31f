"""Figures of an array's values: moments, extremes and a histogram."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import numpy as np

from anyjax.trees import is_array

BINS = 40
CHUNK = 1 << 20  # values that are 64 bits wide at a time


@dataclass(frozen=True)
class Statistics:
    """Figures of an array, in 64 bits; NaNs and infinities are counted and left out of the others.

    Attributes:
      mean, std, minimum, maximum: NaN where no value is finite.
      zeros: share of zeros.
      nans, infinities: how many.
      counts: values in each of ``BINS`` equal steps from the minimum to the maximum; one step where
        these are equal.
    """

    mean: float
    std: float
    minimum: float
    maximum: float
    zeros: float
    nans: int
    infinities: int
    counts: tuple[int, ...]


def statistics(array: object) -> Statistics | None:
    """Returns the figures of an array; None for shapes without values, keys, complex numbers, and
    arrays that lie on other processes.

    Example:
      >>> figures = statistics(np.array([0.0, 1.0, 2.0, np.nan]))
      >>> figures.mean, figures.zeros, figures.nans, sum(figures.counts)
      (1.0, 0.25, 1, 3)
    """
    if not is_array(array) or isinstance(array, jax.ShapeDtypeStruct):
        return None
    if isinstance(array, jax.Array):
        is_key = jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended)
        if is_key or not array.is_fully_addressable:
            return None
    values = np.asarray(array)
    if values.dtype.kind == "c" or values.size == 0:
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # of the largest numbers the sums are inf
        return _figures(values)


def _figures(values: np.ndarray) -> Statistics:
    total, nans, finite_count, zeros = 0.0, 0, 0, 0
    low, high = math.inf, -math.inf
    for chunk in _chunks(values):
        finite = chunk[np.isfinite(chunk)]
        nans += int(np.isnan(chunk).sum())
        zeros += int((finite == 0).sum())
        finite_count += finite.size
        if finite.size:
            total += float(finite.sum())
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    infinities = values.size - finite_count - nans
    if not finite_count:
        nan = math.nan
        return Statistics(nan, nan, nan, nan, 0.0, nans, infinities, ())
    mean, squares, steps = total / finite_count, 0.0, _steps(low, high)
    counts = np.zeros(steps, np.int64)
    for chunk in _chunks(values):
        finite = chunk[np.isfinite(chunk)]
        squares += float(np.square(finite - mean).sum())
        counts += np.histogram(finite, steps, (low, high))[0] if steps > 1 else finite.size
    std = math.sqrt(squares / finite_count)
    share = zeros / values.size
    return Statistics(mean, std, low, high, share, nans, infinities, tuple(counts.tolist()))


def _chunks(values: np.ndarray) -> Iterator[np.ndarray]:
    flat = values.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        yield flat[start : start + CHUNK].astype(np.float64)


def _steps(low: float, high: float) -> int:
    """Returns the number of steps of a histogram; one where numbers are too close or too far."""
    width = high - low
    is_wide = width > 2 * BINS * np.spacing(max(abs(low), abs(high)))
    return BINS if math.isfinite(width) and is_wide else 1
