"""Whole numbers: PyTorch has 64 bits, JAX 32, and what does not fit is said."""

import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import Unsupported

pytestmark = pytest.mark.sample(every=15)

WHOLE = torch.arange(-6, 6, dtype=torch.int32).reshape(3, 4) * 7


class Computes(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return self.change(x)


RIGHT = [
    lambda x: (x << 31, x << 3, x << 40, x >> 31, x >> 40),
    lambda x: (1 << x.abs() % 8, x << (x.abs() % 7), x.to(torch.uint8) << 7),
    lambda x: (x // 4, x // -4, x % -4, torch.fmod(x, 4), torch.div(x, 4, rounding_mode="trunc")),
    lambda x: (x * 2**30, x.float() * 2**40, x.float() + 2**31, x**3, x & 12, ~x),
]


@pytest.mark.parametrize("change", RIGHT)
def test_fits(change):
    anyjax.flax.source(Computes(change), WHOLE)


@pytest.mark.parametrize("change", [lambda x: x.long() << 31, lambda x: x + 2**31])
def test_does_not_fit(change):
    with pytest.raises(Unsupported, match=r"(?s)JAX's.*32.*test_integers\.py:\d+"):
        anyjax.flax.source(Computes(change), WHOLE, check=False)
