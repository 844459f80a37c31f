"""Checks of values: made where the values are known, left out of compiled programs."""

import jax
import numpy as np
import pytest
import torch
from transformers.utils import torch_compilable_check

import anyjax
from anyjax.errors import DataDependent, UncheckedValues
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = np.array([1.0, 2, 3], np.float32)


def asserted(x):
    assert (x > 0).all(), "not positive"
    return x * 2


def of_two(x):
    assert x.ndim == 1 and (x > 0).all(), f"not positive: {x}"
    return x * 2


def of_each(x):
    assert all((part > 0).all() for part in x), "not positive"
    return x * 2


def raised(x):
    if x.ndim > 1 or (x <= 0).any():
        message = "not positive"
        raise AssertionError(message)
    if not torch.isfinite(x).all():
        raise AssertionError("not finite")
    return x * 2


def by_torch(x):
    torch._assert((x > 0).all(), "not positive")
    return x * 2


def of_numbers(x):
    assert x.min().item() > 0 and x.sum().item() / 2 > 0, "not positive"
    return x * 2


def of_lengths(x):
    if x.ndim > 1 or len(torch.unique(x > 0)) != 1:
        raise AssertionError("not alike")
    rows = x[x > 0]
    if rows.shape[0] // 3 < 1:
        raise AssertionError("not positive")
    return x * 2


def by_transformers(x):
    torch_compilable_check(
        torch.unique_consecutive(x > 0).numel() == 1,
        "not positive",
    )
    rows = x[x > 0]
    torch_compilable_check(rows.shape[0] // 3 >= 1, "not positive")
    return x * 2


CHECKS = [asserted, of_two, of_each, raised, by_torch, of_numbers, of_lengths]


@pytest.mark.parametrize("function", [*CHECKS, by_transformers], ids=lambda f: f.__name__)
def test_they_are_left_out_where_no_value_is_known(function):
    model = anyjax.from_torch(function)
    with pytest.warns(UncheckedValues, match="not in the compiled program") as told:
        got = jax.jit(lambda x: model.apply({}, x))(X)
    np.testing.assert_array_equal(got, 2 * X)
    if function is not by_torch:
        assert {w.filename for w in told} == {__file__}


@pytest.mark.parametrize("function", CHECKS, ids=lambda f: f.__name__)
def test_they_are_made_outside_jit(function):
    model = anyjax.from_torch(function)
    np.testing.assert_array_equal(model.apply({}, X), 2 * X)
    with pytest.raises(Exception, match="not positive"):
        model.apply({}, -X)


def test_those_of_transformers_are_made_outside_jit():
    model = anyjax.from_torch(by_transformers)
    np.testing.assert_array_equal(model.apply({}, X), 2 * X)
    with pytest.raises(ValueError, match="not positive"):
        model.apply({}, X - 2)


def compared(x):
    assert bool((x > 2).all()) == (x.ndim == 2)
    return x


def mixed(x):
    assert (x.sum() if (x > 5).any() else x.ndim) == 1
    return x


def of_opposites(x):
    assert x.ndim == 1 and not (x <= 0).any()
    return x


def caught(x):
    try:
        assert (x > 5).all()
    except AssertionError:
        return x * 3
    return x


def of_numbers_by_a_function(x):
    assert max(x.sum().item(), 2) > 1
    return x


UNCLEAR = [compared, mixed, of_opposites, of_numbers_by_a_function]


@pytest.mark.parametrize("function", UNCLEAR, ids=lambda f: f.__name__)
def test_what_decides_more_than_an_error_is_refused(function):
    with pytest.raises(DataDependent):
        jax.jit(lambda x: anyjax.from_torch(function).apply({}, x))(X)


def test_a_check_whose_error_is_caught():
    call = jax.jit(lambda x: anyjax.from_torch(caught).apply({}, x))
    for x in (X, X + 5):
        assert_close(call(x), caught(torch.tensor(x)))


def test_code_that_belongs_to_no_module():
    exec("def function(x):\n    return x * 2 if x.sum() > 0 else -x", namespace := {})
    model = anyjax.from_torch(namespace["function"])
    assert_close(jax.jit(lambda x: model.apply({}, x))(-X), X)
