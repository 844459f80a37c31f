"""What forward leaves outside of the module: values where they are known, else a warning."""

import functools
import warnings

import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import AnyjaxError, StateDropped
from anyjax.torch.core import private
from anyjax.torch.engine import census

pytestmark = pytest.mark.sample(every=4)

X = np.ones((1, 4), np.float32)


@functools.lru_cache
def cached(length):
    return torch.arange(float(length))


@functools.cache
def cached_without_end(length):
    return torch.arange(float(length)), length


class Deep:
    """Objects in each other, farther than a module's code names."""

    def __init__(self):
        self.inner = {"tables": [None]}

    @property
    def tables(self):
        return REGISTRY["deep"].inner["tables"]


REGISTRY = {"deep": Deep()}


def lookup():
    return Deep.__new__(Deep)


def deep(length):
    tables = lookup().tables
    if tables[0] is None:
        tables[0] = (torch.arange(float(length)),)
    return tables[0][0]


KINDS = {
    "lru_cache": cached,
    "lru_cache without end": lambda n: cached_without_end(n)[0],
    "deep": deep,
}


def functional(earlier=()):
    """All functional tensors that are alive, but those that earlier tests left in their errors."""
    import gc

    gc.collect()
    alive = [x for x in gc.get_objects() if type(x) is torch.Tensor and private.is_functional(x)]
    return [x for x in alive if not any(x is y for y in earlier)]


@pytest.fixture(autouse=True)
def _empty_caches():
    yield
    cached.cache_clear()
    cached_without_end.cache_clear()
    REGISTRY["deep"].inner["tables"][0] = None


@pytest.mark.parametrize("kind", KINDS)
def test_constants_in_caches_have_values(kind):
    table = KINDS[kind]

    class Positions(nn.Module):
        def forward(self, x):
            return x + table(4)

    module, earlier = Positions(), functional()
    model = anyjax.from_torch(module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = model(X)
    assert functional(earlier) == []
    np.testing.assert_array_equal(module(torch.from_numpy(X)), X + np.arange(4))
    np.testing.assert_array_equal(out, X + np.arange(4))
    np.testing.assert_array_equal(table(4).numpy(), np.arange(4))
    np.testing.assert_array_equal(jax.jit(model.apply)({}, 2 * X), 2 * X + np.arange(4))


@pytest.mark.parametrize("kind", KINDS)
def test_after_an_error(kind):
    table = KINDS[kind]

    class Fails(nn.Module):
        def forward(self, x):
            x + table(4)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        anyjax.from_torch(Fails())(X)
    np.testing.assert_array_equal(table(4).numpy(), np.arange(4))


@functools.lru_cache
def last(key):
    return [None]


def test_what_depends_on_inputs_is_named():
    class Leaves(nn.Module):
        def forward(self, x):
            lookup().tables[0] = x * 2
            return x

    earlier = functional()
    with pytest.warns(StateDropped, match=r"forward leaves a tensor in a list\[0\]"):
        anyjax.from_torch(Leaves())(X)
    assert functional(earlier) == []
    with pytest.raises(AnyjaxError, match="a tensor of a finished trace"):
        REGISTRY["deep"].inner["tables"][0] + 1


def test_one_look_at_all_objects_serves_all_tensors(monkeypatch):
    looks = []
    referrers = census.gc.get_referrers
    monkeypatch.setattr(census.gc, "get_referrers", lambda *x: looks.append(1) or referrers(*x))
    lists = [[] for _ in range(50)]

    def forward(x):
        hidden = [x + i for i in range(50)]
        for i, one in enumerate(hidden):
            lists[i] += [one, (one, (torch.ones(2), one))]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        anyjax.from_torch(forward)(X)
    assert len(looks) <= census.DEPTH + 1  # the last one is for the name
