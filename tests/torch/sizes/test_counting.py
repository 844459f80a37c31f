"""Distinct values, counts, repetitions and boxes that stay, under jit."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import DataDependent

X = np.array([3, 1, 2, 1, 3, 0, 1], np.int64)
EDGES = np.array([[0, 1, 1, 2, 0, 1], [1, 0, 0, 2, 1, 3]], np.int64)

PROGRAMS = {
    "unique": lambda x: torch.unique(x),
    "with inverse and counts": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "of what a mask chose": lambda x: torch.unique(x[x > 0], return_inverse=True),
    "consecutive": lambda x: torch.unique_consecutive(x.sort().values, return_counts=True),
    "consecutive, chosen": lambda x: torch.unique_consecutive(x[x != 1], return_counts=True),
    "classes": lambda x: torch.bincount(x % 50, minlength=50),
    "classes of few": lambda x: torch.bincount(x[:2] % 40, minlength=40).float(),
    "counts": lambda x: torch.bincount(x % 4, minlength=2),
    "counts, chosen": lambda x: torch.bincount(x[x > 0] % 4),
    "weighted": lambda x: torch.bincount(x % 3, weights=x.float()),
    "repeated": lambda x: torch.repeat_interleave(torch.arange(7) * 10, x % 3),
    "a matrix": lambda x: torch.unique(x[:6].view(2, 3)),
}


def same(got, want):
    if isinstance(want, (tuple, list)):
        for pair in zip(got, want, strict=True):
            same(*pair)
        return
    if isinstance(got, anyjax.CountedArray):
        axis = next((i for i, n in enumerate(want.shape) if n != got.values.shape[i]), 0)
        assert int(got.length) == want.shape[axis]
        got = np.take(np.asarray(got.values), np.arange(want.shape[axis]), axis)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("shift", [0, 1])
def test_numbers(name, shift):
    x = X + shift
    got = jax.jit(anyjax.from_torch(PROGRAMS[name]).apply)({}, x)
    same(got, PROGRAMS[name](torch.from_numpy(x)))


@pytest.mark.parametrize("dim", [0, 1])
def test_rows(dim):
    function = lambda x: torch.unique(x, dim=dim, return_inverse=True, return_counts=True)
    got = jax.jit(anyjax.from_torch(function).apply)({}, EDGES)
    same(got, function(torch.from_numpy(EDGES)))


def test_repetitions_that_nothing_bounds_are_refused():
    model = anyjax.from_torch(lambda x: torch.repeat_interleave(torch.arange(7), x))
    with pytest.raises(DataDependent, match="output_size"):
        jax.jit(model.apply)({}, X)


def test_more_classes_than_are_counted():
    """A greater number than ``minlength`` gives no numbers: there is no place for it."""
    call = jax.jit(anyjax.from_torch(lambda x: torch.bincount(x, minlength=9).float()).apply)
    assert call({}, np.array([8, 0])).tolist() == [1.0, *[0.0] * 7, 1.0]
    assert np.isnan(call({}, np.array([9, 0]))).all()
