"""Repeated calls go straight to their program, and are the same calls still."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.calls import call
from anyjax.errors import MissingRng, StateDropped, StaticArgument, WrongArguments
from tests.tolerance import assert_close

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def looked_at(monkeypatch):
    """The calls that were worked out leaf by leaf."""
    found, first = [], call._first

    def counted(model, args, *rest):
        found.append(args)
        return first(model, args, *rest)

    monkeypatch.setattr(call, "_first", counted)
    return found


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray, torch.tensor])
def test_the_second_call_of_a_kind_is_looked_up(looked_at, kind):
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    want = [model(kind(x)) for x in (X, X + 1)]
    assert len(looked_at) == 1
    weight, bias = (np.asarray(model.params[name]) for name in ("weight", "bias"))
    assert_close(want[1], (X + 1) @ weight.T + bias, reduction=3)
    again = model.with_params(jax.tree.map(lambda p: 2 * p, model.params))  # in another order
    assert_close(again(kind(X)), 2 * want[0], reduction=3)
    again.params["bias"] = 2 * again.params["bias"]  # a dict that somebody writes to
    assert_close(again(kind(X)), 2 * want[0] + 2 * bias, reduction=3)
    assert len(looked_at) == 1


@pytest.mark.filterwarnings("ignore:value came as 4")
def test_python_values_of_other_types_and_signs_are_other_programs():
    traced = []

    def function(x, value):
        traced.append(value)
        sign = math.copysign(1, value) if isinstance(value, float) else value
        return torch.cat([x * sign, x * isinstance(value, bool)])

    model = anyjax.from_torch(function)
    values = (1, True, 1.0, 0.0, -0.0, False, 0, math.nan, -math.inf)
    for _ in range(2):
        for value in values:
            assert_close(model(X, value), function(torch.from_numpy(X), value))
    assert len(traced) == 3 * len(values)  # two of three are torch's own calls


def test_params_that_do_not_fit_are_named_at_every_call():
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    model(X)
    weight = model.params["weight"]
    for params in ({"weight": weight}, model.params | {"more": weight}, {"a": 1, "b": 2}):
        with pytest.raises(WrongArguments, match="do not fit"):
            model.with_params(params)(X)


def test_another_shape_may_ask_for_values():
    """What was static by shape alone asks for the grid's values in a longer call."""

    def function(x, grid):
        return torch.cat([x] * int(grid[0])) if len(x) > 2 else x

    model, grid = anyjax.from_torch(function), np.array([2, 3])
    long = np.ones((3, 1), np.float32)
    assert model(X, grid).shape == model(X, grid).shape == (2, 3)
    with pytest.warns(StaticArgument, match="grid"):
        assert model(long, grid).shape == (6, 1)
    assert model(long, grid + 1).shape == (9, 1)
    assert model(X, grid).shape == (2, 3)


def test_values_are_checked_at_every_call():
    def function(x):
        torch._assert_async((x > 0).all(), "all of them are positive")
        return x + 1

    model = anyjax.from_torch(function)
    assert_close(model(X + 1), X + 2)
    with pytest.raises(RuntimeError, match="all of them are positive"):
        model(X)
    assert_close(model(X + 1), X + 2)


def test_keys_and_modes():
    model = anyjax.from_torch(torch.nn.Dropout(0.5)).train()
    first, second = (model(X, rng=jax.random.key(i)) for i in (0, 1))
    assert (np.asarray(first) != np.asarray(second)).any()
    with pytest.raises(MissingRng):
        model(X)
    assert_close(model.eval()(X), X)


def test_what_is_written_is_warned_about_once_for_each_program():
    model = anyjax.from_torch(torch.nn.BatchNorm1d(3)).train()
    with pytest.warns(StateDropped):
        model(X)
    model(X + 1)


def test_every_shape_that_was_called_is_saved(tmp_path):
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    want = [model(x) for x in (X, X[:1], X[0])]
    model.save(tmp_path / "saved")
    loaded = anyjax.load(tmp_path / "saved")
    for x, y in zip((X, X[:1], X[0]), want):
        assert_close(loaded(x), y, reduction=3)


def test_outputs_that_are_no_arrays():
    model = anyjax.from_torch(lambda x: {"x": x, "rows": len(x), "name": "a"})
    for rows in (2, 2, 1, 1):
        out = model(X[:rows])
        assert (out["rows"], out["name"]) == (rows, "a")


def test_calls_inside_a_transformation():
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    want = model(X)
    assert_close(jax.jit(lambda x: model(x))(X), want, reduction=3)
    assert_close(jax.jit(lambda p: model.with_params(p)(X))(model.params), want, reduction=3)
    assert_close(jax.vmap(lambda x: model(x))(jnp.asarray(X)), want, reduction=3)
    slope = jax.grad(lambda p: model.with_params(p)(X).sum())(model.params)
    assert_close(slope["bias"], np.full(2, 2.0))
    assert_close(model(X), want)
