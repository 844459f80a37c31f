import numpy as np
import pytest
import torch

import tojax
from tojax.torch.core.lifting import inner
from tojax.torch.data_dependent.int64 import ranges

pytestmark = pytest.mark.sample(every=4)

FIVE = torch.arange(5)
CASES = {
    (0, 4): lambda b: FIVE * b,
    (0, 8): lambda b: FIVE + FIVE * b,
    (-4, 4): lambda b: FIVE * b - FIVE,
    (-4, 0): lambda b: -(FIVE * b),
    (0, 16): lambda b: (FIVE * b) ** 2,
    (0, 5): lambda b: b.long().sum(),
    (0, 2): lambda b: (FIVE * b) % 3,
    (1, 3): lambda b: (FIVE * b).clamp(1, 3),
    (0, 7): lambda b: FIVE * b | FIVE,
    (3, 7): lambda b: 7 - FIVE * b,
    (0, 1): lambda b: (b.long() & 1) << 0,
    (0, 32): lambda b: b.long() << 5,
    (-1, 1): lambda b: (FIVE * b).sign(),
    (-20, 20): lambda b: torch.mv(FIVE[None] * b, b.long()),
}


def bounds(function):
    seen = []

    def forward(b):
        out = function(b)
        seen.append(ranges.of(inner(out)))
        return out

    out = tojax.from_torch(forward)(np.array([True, False, True, True, True]))
    return seen[0], np.asarray(out)


@pytest.mark.parametrize("expected", CASES)
def test_known_bounds(expected):
    (low, high), values = bounds(CASES[expected])
    assert (low, high) == expected and low <= values.min() and values.max() <= high


UNKNOWN = {
    "input": lambda x: x,
    "of floats": lambda x: x.float().long(),
    "added up": lambda x: FIVE.index_put((FIVE * 0,), x, accumulate=True),
    "repeated": lambda x: torch.where(x > 0, x, FIVE),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_bounds(name):
    seen = []
    model = tojax.from_torch(lambda x: seen.append(ranges.of(UNKNOWN[name](x))) or x)
    model(np.ones(5, np.int64))
    assert seen == [None]


def test_values_that_are_known():
    assert ranges.of(torch.tensor([3, -2])) == (-2, 3)
    assert ranges.of(torch.tensor([True])) == (1, 1)
    assert ranges.of(torch.ones(0, dtype=torch.int64)) is None
    assert ranges.by_dtype(torch.uint8) == (0, 255)
    assert ranges.of(2.5) == (2, 3) and ranges.of(float("inf")) is None
