"""Writes to places that repeat: one value stays, all of them have its gradient, as in torch."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close
from tests.torch.beside_torch import assert_same_gradients, assert_same_values

pytestmark = pytest.mark.sample(every=8)

RNG = np.random.default_rng(0)
normal = lambda *shape: RNG.standard_normal(shape).astype(np.float32)
Y, V = normal(5), normal(5)
PLACES = np.array([1, 1, 3, 1, 4])
places = lambda: torch.from_numpy(PLACES)


def add_in_place(y, v):
    y = y.clone()
    y[places()] = y[places()] + v
    return y


def rows_in_place(y, v):
    y = y.clone()
    y[places() - 5, :] = v[:, None] * 2
    return y


def columns_in_place(y, v):
    y = y.clone()
    y[:, places()] = v
    return y


def apart_in_place(y, v):
    y = y.clone()
    y[places(), :, places() % 2] = v
    return y


WRITES = {
    "y[i] = y[i] + v": (add_in_place, Y, V),
    "y[i, :] = v": (rows_in_place, normal(5, 3), V),
    "index_put": (lambda y, v: y.index_put((places(),), v), Y, V),
    "index_put of one value": (lambda y, v: y.index_put((places(),), v), Y, V[0]),
    "index_put, two axes": (
        lambda y, v: y.index_put((places(), torch.tensor([0, 0, 1, 1, 0])), v),
        normal(5, 2),
        V,
    ),
    "y[:, i] = v": (columns_in_place, normal(2, 5), normal(2, 5)),
    "y[i, :, j] = v": (apart_in_place, normal(5, 3, 2), normal(5, 3)),
    "scatter": (lambda y, v: y.scatter(0, places(), v), Y, V),
    "scatter, a matrix": (
        lambda y, v: y.scatter(1, torch.tensor([[0, 0, 1], [2, 2, 2]]), v),
        normal(2, 4),
        normal(2, 3),
    ),
    "index_copy": (lambda y, v: y.index_copy(1, places(), v), normal(3, 5), normal(3, 5)),
    "index_fill": (lambda y, v: y.index_fill(0, places(), v), Y, V[0]),
    "put": (lambda y, v: y.put(places(), v), Y, V),
    "accumulated": (lambda y, v: y.index_put((places(),), v, accumulate=True), Y, V),
}


@pytest.mark.parametrize("name", WRITES)
def test_repeated_places(name):
    function, *arrays = WRITES[name]
    assert_same_values(function, *arrays)
    assert_same_gradients(function, *arrays, reduction=8)


def test_repeated_places_that_are_traced():
    write = lambda y, v, i: y.index_put((i,), v)
    assert_same_values(write, Y, V, PLACES)
    assert_same_gradients(write, Y, V, PLACES, reduction=8)


def test_under_vmap():
    """The gradient of each example is its own."""
    model = anyjax.from_torch(lambda y, v, i: y.index_put((i,), v))
    loss = lambda y, v, i: (model.apply({}, y, v, i) * jax.numpy.arange(5.0)).sum()
    many = jax.vmap(jax.grad(loss, 1))(normal(3, 5), normal(3, 5), np.stack([PLACES] * 3))
    assert_close(np.asarray(many), np.stack([PLACES] * 3).astype(np.float32))


CHOSEN = {
    "combinations": lambda x: torch.combinations(x),
    "combinations of three": lambda x: torch.combinations(x, 3, with_replacement=True),
    "masked_select": lambda x: x.masked_select(torch.tensor([True, False, True, True, False])),
    "masked_select, rows": lambda x: x.expand(2, 5).masked_select(torch.arange(5) > 2),
    "cartesian_prod": lambda x: torch.cartesian_prod(x, x[:2]),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_masks_that_are_known(name):
    assert_same_values(CHOSEN[name], Y)
    assert_same_gradients(CHOSEN[name], Y, reduction=32)
