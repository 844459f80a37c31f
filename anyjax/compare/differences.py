"""Differences of arrays, in the figures that a report shows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike

CHUNK = 1 << 20  # elements that are looked at together: arrays may be mapped from files


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
    sums, unit = Sums(), 1.0
    for a, b in _pairs(values, expected):
        sums.add(a, b)
    if not math.isfinite(sums.squares + sums.of_a * sums.of_b):
        unit = sums.largest or 1.0  # squares of the largest floats overflow
        scaled = Sums()
        for a, b in _pairs(values, expected):
            scaled.add(a / unit, b / unit)
        sums = replace(scaled, largest=sums.largest, off=sums.off, scale=sums.scale)
    norms = math.sqrt(sums.of_a) * math.sqrt(sums.of_b)
    return Error(
        absolute=sums.off,
        relative=sums.off / sums.scale if sums.scale else sums.off,
        cosine=sums.product / norms if norms else 1.0,
        ulps=sums.off / _step(values[0].dtype, sums.scale),
        rms=unit * math.sqrt(sums.squares / sums.count) if sums.count else 0.0,
    )


def apart(values: ArrayLike, expected: ArrayLike, least: float = 1e-6) -> float:
    """Returns the largest difference, in parts of the largest finite value expected, or of
    ``least``; infinite for other shapes, and where one side alone is infinite or no number.

    Example:
      >>> apart([1.0, float("nan")], [2.0, float("nan")]), apart([1.0], [[1.0]])
      (0.5, inf)
    """
    a, b = np.asarray(values), np.asarray(expected)
    if a.shape != b.shape:
        return np.inf
    dtype = np.complex128 if np.iscomplexobj(a) or np.iscomplexobj(b) else np.float64
    a, b = a.astype(dtype), b.astype(dtype)
    return float(distances(a, b).max(initial=0.0) / np.abs(b[np.isfinite(b)]).max(initial=least))


@dataclass
class Sums:
    """Largest values, and sums over all finite numbers, which the figures are computed from."""

    largest: float = 0.0
    off: float = 0.0
    scale: float = 0.0
    squares: float = 0.0
    product: float = 0.0
    of_a: float = 0.0
    of_b: float = 0.0
    count: int = 0

    def add(self, a: np.ndarray, b: np.ndarray) -> None:
        """Adds numbers of both sides, in 64 bits."""
        with np.errstate(invalid="ignore", over="ignore"):
            difference = a - b
            squares = float(difference @ difference)
        if not math.isfinite(squares):  # infinities or NaNs, or a very large difference
            difference, finite = distances(a, b), np.isfinite(a) & np.isfinite(b)
            a, b = a[finite], b[finite]
            with np.errstate(invalid="ignore", over="ignore"):
                squares = float(difference @ difference)
        self.count += difference.size
        self.squares += squares
        self.off = max(self.off, _largest(difference))
        self.scale = max(self.scale, _largest(b))
        self.largest = max(self.largest, self.scale, _largest(a))
        with np.errstate(over="ignore"):
            self.product, self.of_a, self.of_b = (
                total + float(x @ y)
                for total, x, y in ((self.product, a, b), (self.of_a, a, a), (self.of_b, b, b))
            )


def _largest(x: np.ndarray) -> float:
    return max(float(x.max(initial=0.0)), -float(x.min(initial=0.0)))


def _pairs(
    values: Sequence[np.ndarray], expected: Sequence[np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields parts of both in 64 bits."""
    for a, b in zip(values, expected):
        yield from zip(_chunks(a), _chunks(b))


def _chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    flat = np.asarray(array).reshape(-1)
    for start in range(0, flat.size, CHUNK):
        yield np.asarray(flat[start : start + CHUNK], np.float64)


def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns absolute differences: 0 for equal infinities and NaNs, infinity beside a number."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(same, 0.0, np.abs(a - b))
    return np.where(np.isnan(difference), np.inf, difference)


def _step(dtype: np.dtype, scale: float) -> float:
    """Returns the distance of two numbers of a dtype at this size."""
    information = ml_dtypes.finfo(dtype)
    power = math.ldexp(1.0, math.frexp(scale)[1] - 1) if scale else 0.0
    return float(information.eps) * max(power, float(information.tiny))


def rms(arrays: Sequence[np.ndarray]) -> float:
    """Returns the root of the mean square of the finite values."""
    largest, count, squares = 0.0, 0, 0.0
    for chunk in (x for array in arrays for x in _chunks(array)):
        chunk = np.abs(chunk[np.isfinite(chunk)])
        unit = float(chunk.max(initial=0.0))
        if unit > largest:
            squares, largest = squares * (largest / unit) ** 2, unit
        if largest:
            squares += float(((chunk / largest) ** 2).sum())
        count += chunk.size
    return largest * math.sqrt(squares / count) if count else 0.0
