"""The larger and the smaller of two: values at infinity and of NaN, gradients of equal ones."""

import numpy as np
import pytest
import torch

from tests.torch.beside_torch import assert_same_gradients, assert_same_values

pytestmark = pytest.mark.sample(every=8)

ENDS = np.array([0, -0.0, 1, -2, 5, np.inf, -np.inf, np.nan], np.float32)
PAIRS = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "clamp, from below": lambda x, y: x.clamp(min=y),
    "clamp, from above": lambda x, y: x.clamp(max=y),
    "clamp": lambda x, y: x.clamp(y - 1, y),
}
NUMBERS = {
    "clamp, number": lambda x: x.clamp(-2, 1),
    "clamp, NaN": lambda x: x.clamp(min=float("nan")),
    "clamp, crossed": lambda x: x.clamp(1, -2),
    "clamp, infinite": lambda x: x.clamp(-2, float("inf")),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name):
    x, y = (v.ravel() for v in np.meshgrid(ENDS, ENDS))
    assert_same_values(PAIRS[name], x, y)
    finite = np.isfinite(x) & np.isfinite(y)
    assert_same_gradients(PAIRS[name], x[finite], y[finite])


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    assert_same_values(NUMBERS[name], ENDS)
    assert_same_gradients(NUMBERS[name], ENDS[:-1])
