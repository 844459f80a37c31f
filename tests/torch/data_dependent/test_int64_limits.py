import numpy as np
import pytest
import torch

import anyjax
from anyjax.torch.core.lifting import inner
from anyjax.torch.data_dependent import int64

FIVE = torch.arange(5)
CASES = {
    "product": (4, lambda b: FIVE * b),
    "sum of two": (8, lambda b: FIVE + FIVE * b),
    "difference": (8, lambda b: FIVE * b - FIVE),
    "negative": (4, lambda b: -(FIVE * b)),
    "power": (16, lambda b: (FIVE * b) ** 2),
    "sum": (5, lambda b: b.long().sum()),
    "remainder": (3, lambda b: (FIVE * b) % 3),
    "quotient": (4, lambda b: (FIVE * b) // 2),
    "clamped": (3, lambda b: (FIVE * b).clamp(1, 3)),
    "clamped above": (4, lambda b: (FIVE * b).clamp(max=3)),
    "bits": (8, lambda b: FIVE * b | FIVE),
    "reversed": (11, lambda b: 7 - FIVE * b),
    "common bits": (1, lambda b: (b.long() & 1) << 0),
    "shifted": (32, lambda b: b.long() << 5),
    "sign": (1, lambda b: (FIVE * b).sign()),
    "matrix": (20, lambda b: torch.mv(FIVE[None] * b, b.long())),
    "of bytes": (255, lambda b: b.to(torch.uint8).view(1, 5).long()),
}


def limit(function):
    limits = []

    def forward(b):
        out = function(b)
        limits.append(int64.limit_of(inner(out)))
        return out

    out = anyjax.from_torch(forward)(np.array([True, False, True, True, True]))
    return limits[0], np.asarray(out)


@pytest.mark.parametrize("name", CASES)
def test_limits(name):
    expected, function = CASES[name]
    largest, values = limit(function)
    assert largest == expected and np.abs(values).max() <= largest


UNKNOWN = {
    "input": lambda x: x,
    "of floats": lambda x: x.float().long(),
    "added up": lambda x: FIVE.index_put((FIVE * 0,), x, accumulate=True),
    "repeated": lambda x: torch.where(x > 0, x, FIVE),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_no_limit(name):
    limits = []
    model = anyjax.from_torch(lambda x: limits.append(int64.limit_of(UNKNOWN[name](x))) or x)
    model(np.ones(5, np.int64))
    assert limits == [int64.UNKNOWN]


def test_limits_of_constants_and_numbers():
    assert int64.limit_of(torch.tensor([3, -4])) == 4
    assert int64.limit_of(torch.tensor([True])) == 1
    assert int64.limit_of(torch.ones(0, dtype=torch.int64)) == int64.UNKNOWN
    assert int64.limit_of(torch.ones(0, dtype=torch.int8)) == 128
    assert int64.limit_of(2.5) == 3 and int64.limit_of(float("inf")) == int64.UNKNOWN
