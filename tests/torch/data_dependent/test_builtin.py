"""Functions of Python's own on sizes that values, or a saved program, leave open."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

X = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
LIMITS = -9.0, -0.3, 0.0, 0.6, 9.0  # all rows, some, none


def best(x, limit):
    """At most four of the rows beyond a limit."""
    rows = x[x[:, 0] > limit]
    return rows[rows[:, 1].topk(min(4, rows.size(0))).indices]


def at_least_three(x, limit):
    count = len(x[x[:, 0] > limit])
    return x.new_ones(max([count, 3]), 2)


def shortest(x, limit):
    first, second = x[x[:, 0] > limit], x[x[:, 1] > limit]
    count = min(len(first), len(second), key=lambda size: size)
    return first[:count].sum(0) + max(1, 2)


def integers(x, limit):
    rows = x[x[:, 0] > limit]
    return rows.new_zeros(int(rows.shape[0])) + (0 if isinstance(int("3"), int) else 1)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("function", [best, at_least_three, integers])
def test_sizes_of_values(function, limit):
    want = function(torch.from_numpy(X), limit).numpy()
    got = jax.jit(anyjax.from_torch(function).apply)({}, X, np.float32(limit))
    assert int(got.length) == len(want)
    assert_close(got.values[: len(want)], want)
    assert "min" not in globals() and "len" not in globals()


@pytest.mark.parametrize("limit", LIMITS)
def test_with_a_key_both_ways_are_taken(limit):
    want = shortest(torch.from_numpy(X), limit).numpy()
    got = jax.jit(anyjax.from_torch(shortest).apply)({}, X, np.float32(limit))
    assert_close(got, want, reduction=32)


@pytest.mark.parametrize("rows", [1, 3, 6])
def test_sizes_of_a_saved_program(rows, tmp_path):
    model = anyjax.from_torch(lambda x: (x[: min(len(x), 4)].sum(0), x.new_ones(max(3, len(x)))))
    model.save(tmp_path / "saved", X, shapes={"x": "rows, 2"})
    got = anyjax.load(tmp_path / "saved")(X[:rows])
    assert_close(got[0], X[: min(rows, 4)].sum(0))
    assert got[1].shape == (max(rows, 3),)
