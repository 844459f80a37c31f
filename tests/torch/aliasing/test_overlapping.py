"""Writes to expanded tensors are refused, writes beside them are not."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported
from tests.tolerance import assert_close
from tests.torch.beside_torch import assert_same_values

pytestmark = pytest.mark.sample(every=4)

X = np.array([[0.5, -np.inf, 2.0]], np.float32)
REFUSED = {
    "fill_": lambda e: e.fill_(1.5),
    "zero_": lambda e: e.zero_(),
    "row": lambda e: e[0].fill_(0),
    "setitem": lambda e: e[1].__setitem__(slice(0, 2), 0.0),
    "a view of a view": lambda e: e.T[1:].T[0].mul_(2),
    "in no_grad": lambda e: torch.no_grad()(e.zero_)(),
}
SERVED = {
    "clone": lambda x: x.expand(3, 3).clone().fill_(1.5),
    "contiguous": lambda x: x.expand(3, 3).contiguous().mul_(2),
    "reshape": lambda x: x.expand(3, 3).reshape(-1).add_(1),
    "sum": lambda x: (x.expand(3, 3) + 1).add_(1),
    "one of each": lambda x: (x * 1).expand(1, 3).add_(1),
    "axes": lambda x: x.expand(3, 3).unsqueeze_(0) + 1,
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    def function(x):
        x = x * 1
        REFUSED[name](x.expand(2, 3))
        return x

    with pytest.raises(Unsupported, match="of an expanded tensor"):
        anyjax.from_torch(function)(X)


@pytest.mark.parametrize("name", SERVED)
def test_served(name):
    got = jax.jit(anyjax.from_torch(SERVED[name]).apply)({}, X)
    assert_close(got, SERVED[name](torch.from_numpy(X.copy())).numpy())


def test_tensors_that_are_broadcast_together():
    def function(x):
        one, _ = torch.broadcast_tensors(x, torch.zeros(2, 1))
        return one.zero_()

    with pytest.raises(Unsupported, match="zero_ of an expanded tensor"):
        anyjax.from_torch(function)(X)


def windows(x):
    x.unfold(0, 3, 1)[1, 1] = 5


def strided(x):
    torch.as_strided(x, (3, 2), (1, 1))[1, 1] = 5


@pytest.mark.parametrize("write", [windows, strided])
def test_windows_that_overlap(write):
    with pytest.raises(
        Unsupported, match="__setitem__ of an expanded tensor, of windows that overlap"
    ):
        anyjax.from_torch(lambda x: write(x * 1))(np.ones(6, np.float32))


def test_windows_that_do_not_overlap():
    def function(x):
        y = x * 1
        torch.as_strided(y, (2, 2), (3, 2))[1, 1] = 7
        return y

    assert_same_values(function, np.ones(6, np.float32))


@pytest.mark.parametrize("shape", [(0, 3), (0, 1, 3)], ids=str)
def test_no_rows_of_an_expanded_tensor(shape):
    function = lambda x: (x.expand(shape), torch.arange(3).expand(shape)[..., 1:].reshape(-1))
    got, want = anyjax.from_torch(function)(np.ones((1, 3), np.float32)), function(torch.ones(1, 3))
    assert [x.shape for x in got] == [x.shape for x in want]
