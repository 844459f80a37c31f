"""Warnings come once for each line of the user's, and name that line."""

import random
import warnings

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax import warn_once
from anyjax.errors import FrozenDraw, StateDropped, StaticArgument, UncheckedValues

X = np.ones((4, 3), np.float32)


@pytest.fixture
def said():
    """What a program prints under Python's own filters, however often others change them."""
    warn_once._SHOWN.clear()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        yield found


def repeatedly(call, times=4):
    for i in range(times):
        call(np.ones((4 + i, 3), np.float32))
        with warnings.catch_warnings():  # which makes Python's registries forget
            warnings.simplefilter("default")


class Drawing(torch.nn.Module):
    def forward(self, x):
        return x + random.random()


class Asserting(torch.nn.Module):
    def forward(self, x):
        assert (x >= 0).all(), "negative"
        return x


CALLS = {
    "apply": (StateDropped, lambda m: lambda x: m.apply(m.params, x)),
    "jit": (StateDropped, lambda m: lambda x: jax.jit(lambda p, x: m.apply(p, x))(m.params, x)),
    "call": (StateDropped, lambda m: m),
    "draw": (FrozenDraw, lambda m: anyjax.from_torch(Drawing())),
    "assert": (UncheckedValues, lambda m: anyjax.from_torch(Asserting())),
    "values": (
        StaticArgument,
        lambda m: (
            lambda x: anyjax.from_torch(lambda x, n: x.repeat(int(n[0]), 1))(x, np.array([2]))
        ),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_once_and_at_the_users_line(said, name):
    category, make = CALLS[name]
    repeatedly(make(anyjax.from_torch(torch.nn.BatchNorm1d(3).train())))
    assert [(x.category, x.filename) for x in said] == [(category, __file__)]


def test_every_line_is_told(said):
    model = anyjax.from_torch(torch.nn.BatchNorm1d(3).train())
    model.apply(model.params, X)
    model.apply(model.params, X)
    assert len({x.lineno for x in said}) == len(said) == 2


def test_filters_are_followed():
    with warnings.catch_warnings():
        for action, count in (("always", 3), ("ignore", 0)):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter(action)
                for _ in range(3):
                    warn_once.warn("a text", UserWarning)
            assert len(found) == count
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(UserWarning, match="a text"):
                warn_once.warn("a text", UserWarning)
        warnings.filterwarnings("ignore", "a t.xt", UserWarning)
        warn_once.warn("a text", UserWarning)


def test_the_fourth_float_is_named():
    model = anyjax.from_torch(lambda x, scale=1.0, shift=0.0: x * scale + shift)
    for scale in (0.5, 1.5, 0.5, 2.5):
        model(X, scale=scale, shift=1.0)
    with pytest.warns(StaticArgument, match=r"scale came as 4 .*0\.5, 1\.5, 2\.5, 3\.5.*array"):
        model(X, scale=3.5, shift=1.0)
    for scale in (4.5, 0.5):  # said once
        model(X, scale=scale, shift=1.0)
    for scale in (4.5, 5.5, 6.5, 7.5, 8.5):  # what to do instead: one program
        np.testing.assert_array_equal(model(X, scale=np.float32(scale), shift=1.0), X * scale + 1)
