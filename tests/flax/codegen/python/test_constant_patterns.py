"""Expressions for constants that are too large to be spelled out."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported
from anyjax.flax.codegen.python.constant_patterns import difference, expression_for

pytestmark = pytest.mark.sample(every=15)

RATES = 1 / (10000 ** (torch.arange(0, 32, 2) / 32))
ANGLES = torch.outer(torch.arange(50).float(), RATES)


def squares(side, stride=1):
    """Which of the distances down and along lies between the places of two squares."""
    far = range(side)
    places = [(i, j) for i in far for j in far]
    seen: dict = {}
    rows = [
        [seen.setdefault((abs(i - k), abs(j - n)), len(seen)) for k, n in places]
        for i, j in places
        if i % stride == j % stride == 0
    ]
    return torch.tensor(rows)


def windows(side):
    """Relative places as Swin numbers them."""
    places = torch.stack(torch.meshgrid(*[torch.arange(side)] * 2, indexing="ij")).flatten(1)
    distances = places[:, :, None] - places[:, None, :] + side - 1
    return distances[0] * (2 * side - 1) + distances[1]


def learned(length, width, order, padding=None):
    """Positions as fairseq makes them."""
    rates = torch.exp(torch.arange(width // 2) * -(math.log(10000) / (width // 2 - 1)))
    angles = torch.arange(length)[:, None] * rates
    table = torch.cat([getattr(angles, name)() for name in order], 1)
    if padding is not None:
        table[padding] = 0
    return table


TABLES = {
    "range": torch.arange(300).expand(1, -1),
    "pairs": torch.stack([torch.arange(600) % 24, torch.arange(600) // 24], -1).float(),
    "grid": torch.arange(20)[:, None].expand(20, 30),
    "places": torch.stack(torch.meshgrid(*[torch.arange(20)] * 2, indexing="ij"), -1),
    "causal": torch.ones(1, 1, 40, 40).bool().tril(),
    "later": ~torch.ones(40, 40).bool().tril(),
    "low": torch.full((40, 40), -math.inf).triu(1),
    "eye": torch.eye(30),
    "rates": RATES,
    "angles": ANGLES,
    "sines": ANGLES.sin()[None],
    "rotary": torch.cat([ANGLES, ANGLES], 1).cos(),
    "in turns": torch.stack([ANGLES.sin(), ANGLES.cos()], -1).flatten(1),
    "complex": torch.polar(torch.ones_like(ANGLES), ANGLES),
    "fairseq": learned(130, 64, ("sin", "cos"), padding=1),
    "cosine first": learned(128, 64, ("cos", "sin")),
    "distances": squares(7),
    "distances from some": squares(8, 2),
    "windows": windows(7),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_expressions(name):
    array = TABLES[name].numpy()
    array = array.astype(np.int32) if array.dtype == np.int64 else array
    text = expression_for(array)
    assert text is not None and len(text) < 250
    assert difference(array, text) <= (0 if array.dtype.kind in "bi" else 3e-5)


@pytest.mark.parametrize("array", [np.random.rand(20, 20), np.random.randint(0, 9, (20, 20))])
def test_other_arrays_have_none(array):
    assert expression_for(array.astype(array.dtype.kind + "4")) is None


def test_a_sum_with_a_dimension_of_size_1():
    array = np.arange(2, 130, dtype=np.int32)[None]
    text = expression_for(array)
    assert text is not None
    np.testing.assert_array_equal(eval(text, {"jnp": jnp}), array)


def test_a_table_a_little_off_has_none():
    array = TABLES["in turns"].clone().numpy()
    array[30, 3] += 0.01
    assert expression_for(array) is None


class Keeps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("noise", torch.randn(20, 20), persistent=False)

    def forward(self, x):
        return x + self.noise


def test_numbers_that_nobody_has_are_refused():
    with pytest.raises(Unsupported, match="400 numbers that no weights file has"):
        anyjax.flax.source(Keeps(), torch.ones(20, 20))
