"""How far arrays are apart: shapes, infinities and NaNs, complex numbers, small ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from anyjax.compare.differences import apart, distances, error, rms

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("values", "expected", "off"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0.5),
        ([INF, NAN, 1.0], [INF, NAN, 1.0], 0.0),
        ([INF], [-INF], INF),
        ([NAN], [1.0], INF),
        ([1.0], [NAN], INF),
        ([1.0, 2.0], [[1.0, 2.0]], INF),
        ([1 + 1j], [1 - 1j], 2 / abs(1 - 1j)),
        ([3], [4], 0.25),
        ([True], [False], 1e6),
        ([], [], 0.0),
        ([1e-9], [0.0], 1e-3),
    ],
)
def test_apart(values, expected, off):
    assert apart(values, expected) == pytest.approx(off)


def test_narrow_floats_are_compared_in_64_bits():
    x = np.array([1.0, 3e38], ml_dtypes.bfloat16)
    assert apart(x, -x) == 2
    assert distances(np.float64([1e308]), np.float64([-1e308])) == INF
    assert error([x], [x]).rms == 0 and rms([x]) == pytest.approx(3e38 / 2**0.5, rel=0.01)
