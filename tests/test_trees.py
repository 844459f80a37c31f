from collections import namedtuple
from typing import NamedTuple

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.trees import names, register

X = np.ones((2, 3), np.float32)


class Pair(tuple):
    """Has a constructor of its own."""

    def __new__(cls, first, second):
        return tuple.__new__(cls, (first, second))

    @property
    def first(self):
        return self[0]


class Slots(tuple):
    __slots__ = ()


class Several(list):
    scale = 3


Named = namedtuple("Named", "first second")


class More(Named):
    pass


@pytest.mark.parametrize("given", [Pair(X, X), Slots((X, X)), Several([X, X]), More(X, X)])
def test_classes_of_tuples_and_lists(given):
    def forward(pair):
        assert type(pair) is type(given)
        return pair, getattr(pair, "first", pair[0]) * getattr(pair, "scale", 2) + pair[1]

    model = anyjax.from_torch(forward)
    for call in (model, lambda x: model.apply({}, x), lambda x: jax.jit(model.apply)({}, x)):
        pair, out = call(given)
        assert type(pair) is type(given) and len(pair) == 2
        np.testing.assert_array_equal(out, X * getattr(given, "scale", 2) + X)


def test_their_attributes_come_along():
    several = Several([X])
    several.scale = 5
    out = jax.tree.map(lambda x: 2 * x, register(several))
    assert type(out) is Several and out.scale == 5 and out[0][0, 0] == 2
    assert names((several,), {}, ["many"]) == ["many[0]"]


def test_a_size_is_one_value():
    assert anyjax.from_torch(lambda x, size: x.reshape(size))(X, torch.Size([6])).shape == (6,)


class Checked(NamedTuple):
    """A named tuple."""

    values: object
    size: object = None


class CheckedPair(Checked):
    """One that looks at its fields when it is made."""

    def __new__(cls, values, size=None):
        assert values.shape, "an array"
        return super().__new__(cls, values, size)


def test_a_named_tuple_that_checks_its_fields():
    pair = register(CheckedPair(np.ones(2), 3))
    mapped = jax.tree.map(lambda x: "leaf", pair)
    assert type(mapped) is CheckedPair and mapped.values == "leaf"
    assert register(CheckedPair(np.ones(2))).size is None  # it is adopted once
