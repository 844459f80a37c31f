"""Indices that only the compiled program knows."""

import jax
import numpy as np
import pytest
import torch

import anyjax

pytestmark = pytest.mark.sample(every=4)

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
MASK = torch.tensor([True, False, True])

READS = {
    "row": lambda x, i: x[i],
    "last axis": lambda x, i: x[..., i],
    "between slices": lambda x, i: x[1:, i, ::2],
    "after a new axis": lambda x, i: x[None, :, i],
    "two": lambda x, i: x[i, :, i + 1],
    "before a vector": lambda x, i: x[i, :, torch.tensor([3, 0])],
    "behind a mask": lambda x, i: x[MASK, i],
    "an integer and it": lambda x, i: x[1, i],
    "written later": lambda x, i: x[i].add_(1),
}


def put(index, value):
    def function(x, i):
        x = x.clone()
        x[index(i)] = value(x)
        return x

    return function


WRITES = {
    "a number": put(lambda i: i, lambda x: 7.0),
    "a row": put(lambda i: (slice(None), i), lambda x: x[:, 0] * 2),
    "broadcast": put(lambda i: (..., i), lambda x: x[0, :, 0]),
    "slices": put(lambda i: (slice(1, None), i, slice(None, None, 2)), lambda x: -1.0),
    "two": put(lambda i: (i, slice(None), i + 1), lambda x: x[0, :, 0]),
}


def adds(x, i):
    x = x.clone()
    x[i] += 1
    return x


def through_a_view(x, i):
    x = x.clone()
    x[i][1:].add_(1)
    return x


def nested(x, i):
    x = x.clone()
    x[i][i + 1] = 5
    x[i][0].mul_(2)
    return x


def read_before_a_write(x, i):
    x = x.clone()
    row = x[i]
    part = row[1:]
    x.mul_(3)
    row.sub_(1)
    return x, row, part


def without_gradient(x, i):
    x = x.clone()
    with torch.no_grad():
        x[i].add_(2)
    return x


VIEWS = {f.__name__: f for f in (adds, through_a_view, nested, read_before_a_write)}
VIEWS["without_gradient"] = without_gradient


@pytest.mark.parametrize("i", [0, 1, -1])
@pytest.mark.parametrize("case", [*READS, *WRITES, *VIEWS])
def test_an_integer_of_the_program(case, i):
    function = (READS | WRITES | VIEWS)[case]
    want = function(torch.tensor(X), torch.tensor(i))
    model = anyjax.from_torch(function)
    got = jax.jit(model.apply)({}, X, np.int64(i))
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        np.testing.assert_array_equal(one, other)


def test_gradients_reach_the_row():
    model = anyjax.from_torch(READS["row"])
    grad = jax.jit(jax.grad(lambda x: (model.apply({}, x, np.int64(1)) ** 2).sum()))(X)
    want = np.zeros_like(X)
    want[1] = 2 * X[1]
    np.testing.assert_array_equal(grad, want)


def test_a_cache_is_filled_in_a_loop():
    def step(cache, row, i):
        cache = cache.clone()
        cache[:, i] = row
        return cache

    model = anyjax.from_torch(step)
    body = lambda i, cache: model.apply({}, cache, X[:, 0] * i, i)
    got = jax.jit(lambda cache: jax.lax.fori_loop(0, 4, body, cache))(np.zeros_like(X))
    np.testing.assert_array_equal(got, np.stack([X[:, 0] * i for i in range(4)], 1))
