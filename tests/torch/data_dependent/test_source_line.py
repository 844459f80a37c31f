"""Overflow that is repaired where it is seen: both ways in the program, torch's choice of them."""

import ast
import inspect
import sys
from types import ModuleType

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.torch.data_dependent.source_line import test_at as asked_at
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = np.array([1.0, -5, 2, 3], np.float32)


def as_detr(x):
    x = x * 2
    if not torch.isfinite(x).all():
        limit = torch.finfo(x.dtype).max - 1000
        x = torch.clamp(x, min=-limit, max=limit)
    return x + 1


def above(x):
    if x.is_sparse is False and (x > 2.5).any():
        x = x.clamp(-1, 1)
    return x * 3


def in_order(x):
    if (x > 2.5).all():
        x = x.clamp(-1, 1)
    if not (x > 4).any():
        x = torch.clamp(x, max=2)
    return x * 3


@pytest.mark.parametrize("function", [as_detr, above, in_order], ids=lambda f: f.__name__)
@pytest.mark.parametrize("x", [X, -X, X + 9, X * np.inf], ids=["x", "minus", "large", "inf"])
def test_both_ways(function, x):
    got = jax.jit(lambda x: anyjax.from_torch(function).apply({}, x))(x)
    assert_close(got, function(torch.tensor(x)).numpy())


def test_gradients():
    run = lambda x: anyjax.from_torch(in_order).apply({}, x).sum()
    for x in (X, X + 9):
        tensor = torch.tensor(x, requires_grad=True)
        in_order(tensor).sum().backward()
        assert_close(jax.jit(jax.grad(run))(x), tensor.grad.numpy())


def longer(x):
    if (x > 2).any():
        x = x.clamp(-1, 1)
        x = x * 2
    return x


def otherwise(x):
    if (x > 2).any():
        x = x.clamp(-1, 1)
    else:
        x = x * 2
    return x


def another_name(x):
    y = x * 2
    if (x > 2).any():
        y = x.clamp(-1, 1)
    return y


def either(x):
    if (x > 2).any() or (x < -2).any():
        x = x.clamp(-1, 1)
    return x


def both(x):
    if (x > 2).any() and (x < -2).any():
        x = x.clamp(-1, 1)
    return x


def no_if(x):
    return x.clamp(-1, 1) if (x > 2).any() else x


CASES = [longer, otherwise, another_name, either, both, no_if]


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_any_other_branch_is_one_of_two_ways(function):
    call = jax.jit(lambda x: anyjax.from_torch(function).apply({}, x))
    for x in (X, X * 3, -X):
        assert_close(call(x), function(torch.tensor(x)))


def test_other_modules_are_left_alone(monkeypatch):
    """Reading the source runs no code of modules that look themselves up."""

    class Lazy(ModuleType):
        def __getattribute__(self, name):
            raise AssertionError(name)

    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    monkeypatch.setattr(inspect, "modulesbyfile", {})  # nobody asked yet
    asked_at.cache_clear()
    code = as_detr.__code__
    assert ast.unparse(asked_at(code, code.co_firstlineno + 2).test) == (
        "not torch.isfinite(x).all()"
    )
