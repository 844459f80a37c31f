"""Shifts of all integers by all amounts: none, all bits, too many, fewer than none."""

import numpy as np
import pytest
import torch

import anyjax
from tests.torch.beside_torch import assert_same_values

pytestmark = pytest.mark.sample(every=8)

INTEGERS = ["uint8", "int8", "int16", "int32"]


def numbers(dtype):
    limits = np.iinfo(dtype)
    return np.array([0, 1, 5, 100, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype)


@pytest.mark.parametrize("shift", [0, 1, 4, 7, 8, 15, 16, 31, 32, 64, 100, -1, -9])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype, shift):
    if shift < 0 and dtype == "uint8":
        pytest.skip("the shift is no uint8")
    x = numbers(dtype)
    cast = lambda x: x.to(getattr(torch, dtype))  # int32 stands for int64 where x64 is off
    by = np.full_like(x, shift)
    assert_same_values(lambda x, n: (cast(x) >> cast(n), cast(x) << cast(n)), x, by)
    assert_same_values(lambda x: cast(x) >> shift, x)
    assert_same_values(lambda x: cast(x) << shift, x)


def test_halves_of_bytes():
    """As 4-bit weights are unpacked."""
    packed = np.arange(256, dtype=np.uint8)
    assert_same_values(lambda x: torch.stack([x >> 4, x & 15], -1), packed)
    assert_same_values(lambda x: (x.to(torch.int8) << 4) >> 4, packed)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_logic(dtype):
    x = numbers(dtype)
    assert_same_values(lambda x, y: (x & y, x | y, x ^ y, ~x), x, x[::-1].copy())


def test_bits_that_32_do_not_hold():
    """An int64 that is shifted beyond them, but no int32."""
    x = np.array([1, 3, -1], np.int32)
    with pytest.raises(anyjax.errors.Unsupported, match="do not fit 32 bits"):
        anyjax.from_torch(lambda x: x << 31)(x)
    assert_same_values(lambda x: x.to(torch.int32) << 31, x)
