"""Ranges, parts and joins of tensors of which some rows count."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

X = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
RANGES = [
    slice(None, 1), slice(None, 2), slice(2, None), slice(-2, None), slice(None, -1), slice(1, -1),
    slice(None, None, 2), slice(1, 9, 3), slice(-9, 2), slice(9, None),
]  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 2, 5, 7])
@pytest.mark.parametrize("part", RANGES, ids=str)
def test_ranges_are_those_of_what_counts(part, count):
    x = X.clone()
    x[:, 0] = torch.where(torch.randperm(7, generator=torch.Generator()) < count, 1.0, -1.0)
    function = lambda x: x[x[:, 0] > 0][part]
    rows = jax.jit(anyjax.from_torch(function).apply)({}, x.numpy())
    want = function(x)
    values, number = rows if isinstance(rows, anyjax.CountedArray) else (rows, len(rows))
    assert number == len(want)
    np.testing.assert_array_equal(values[: len(want)], want)


def joined(x):
    some, others = x[x[:, 0] > 0], x[x[:, 1] > 0]
    both = torch.cat([some, x[:2], others * 2])
    return both.cumsum(0)[-1], both.flip(0)[0], torch.stack([some, some.exp()], 1).sum((0, 1))


def split(x):
    rows = x[x[:, 0] > 0]
    first, rest = rows.split([1, 2], 1)
    wide = torch.nn.functional.pad(rows, (1, 1, 0, 2), value=3.0)
    return first.sum(), rest.unbind(1)[1].prod(), wide.sum(0), rows.repeat(2, 2).sum(0)


@pytest.mark.parametrize("function", [joined, split])
def test_joins_and_parts(function):
    model = anyjax.from_torch(function)
    for got, want in zip(jax.jit(model.apply)({}, X.numpy()), function(X)):
        assert_close(got, want, reduction=32)


@pytest.mark.parametrize("limit", [-9.0, 0.0, 0.7, 9.0])
def test_parts_of_sizes_that_values_decide(limit):
    def forward(x, limit):
        first, second = x[x[:, 0] > limit], x[x[:, 1] > limit]
        one, other = torch.cat([first, second]).tanh().split([len(first), len(second)])
        return one.sum(0), (other * other).sum(0)

    x = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
    want = forward(torch.from_numpy(x), limit)
    for got, wanted in zip(jax.jit(anyjax.from_torch(forward).apply)({}, x, limit), want):
        assert_close(got, wanted.numpy(), reduction=32)
