"""Functions of Python's own on sizes that values, or a saved program, leave open."""

import math

import jax
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import anyjax
from anyjax.errors import DataDependent
from anyjax.torch.data_dependent import builtin
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


def halves(x, limit):
    rows = x[x[:, 0] > limit]
    count = int(len(rows) * 0.5), math.ceil(len(rows) / 2), math.floor(float(len(rows)) / 4)
    return rows[: count[0]].sum(0), rows[count[1] :].sum(0), rows[: count[2]].sum(0)


def a_mean_of_none(x, limit):
    rows = x[x[:, 0] > limit]
    both = rows.sum(0) / max(len(rows), 1), rows.sum(0) / float(torch.sym_max(len(rows), 1))
    return *both, F.pad(rows, (0, 0, 0, 10 - len(rows)))


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("function", [halves, a_mean_of_none])
def test_numbers_of_sizes(function, limit):
    got = jax.jit(anyjax.from_torch(function).apply)({}, X, np.float32(limit))
    for value, want in zip(got, function(torch.from_numpy(X), limit), strict=True):
        assert_close(value, want.numpy(), reduction=32)


def least_of_floats(x, limit):
    rows = x[x[:, 0] > limit]
    return x.sum(0) * min(float("inf"), len(rows)) + issubclass(bool, int)


@pytest.mark.parametrize("limit", LIMITS)
def test_floats_beside_sizes(limit):
    got = jax.jit(anyjax.from_torch(least_of_floats).apply)({}, X, np.float32(limit))
    assert_close(got, least_of_floats(torch.from_numpy(X), limit).numpy(), reduction=32)


VALUES = {
    "type(x) in (int, float)": True,
    "x.to(float)": True,
    "{float: 1}[type(x)]": True,
    "kind is float": True,
    "sorted(x, key=float)": True,
    "float(x) + float(2)": False,
    "isinstance(x, (int, float))": False,
    "isinstance(x, int | float)": False,
    "torch.jit.annotate(List[float], [])": False,
}


@pytest.mark.parametrize("code", VALUES)
def test_a_function_that_is_a_value_stays(code):
    text = f"Number = float\ndef f(x: float, y=float):\n    z: float = x\n    return {code}"
    assert builtin.is_a_value(text, "float") == VALUES[code]
    assert issubclass(float, builtin.Float) and not issubclass(int, builtin.Float)


@pytest.mark.parametrize("number", [lambda n: int(n * 0.1), lambda n: round(n * 0.5)])
def test_numbers_that_floats_do_not_have_exactly(number):
    function = lambda x: x[: number(len(x[x[:, 0] > 0]))]
    with pytest.raises(DataDependent):
        jax.jit(anyjax.from_torch(function).apply)({}, X)
