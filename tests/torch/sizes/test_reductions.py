"""The least and the greatest of ``x[mask]``, and its product, under jit."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

EXTREMES = {
    "min": lambda x: x[x > 0].min(),
    "max of negatives": lambda x: x[x < 0].max(),
    "amax of rows": lambda x: x.reshape(2, 2)[x[:2] < 9].amax(0),
    "amin": lambda x: x[x > 0].amin((0,)),
    "prod": lambda x: x[x < 4].prod(),
    "logsumexp": lambda x: x[x < 4].logsumexp(0),
    "integers": lambda x: torch.stack([x.int()[x > 0].min(), x.int()[x < 0].max()]).float(),
    "bools": lambda x: (x > 3)[x > 0].amax().float(),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_of_rows_of_an_unknown_number(name):
    x = np.float32([1, -2, 3, 4])
    model = anyjax.from_torch(EXTREMES[name])
    inputs = torch.tensor(x, requires_grad=True)
    expected = EXTREMES[name](inputs)
    assert_close(jax.jit(model.apply)({}, x), expected.detach())
    if expected.requires_grad:
        expected.sum().backward()
        grad = jax.jit(jax.grad(lambda x: model.apply({}, x).sum()))(x)
        assert_close(grad, inputs.grad)


def test_there_is_no_least_of_no_numbers():
    model, none = anyjax.from_torch(EXTREMES["min"]), -np.ones(4, np.float32)
    assert np.isnan(jax.jit(model.apply)({}, none))
    with pytest.raises(anyjax.errors.AnyjaxError):
        model(none)


def test_a_number_chosen_by_its_own_mask():
    def function(x):
        total = x.sum()
        positive = total > 0
        out = torch.ones_like(total)
        out[positive] = 1 - total[positive] / 2
        return out

    model = anyjax.from_torch(function)
    for x in np.ones(3, np.float32), -np.ones(3, np.float32):
        assert_close(jax.jit(model.apply)({}, x), function(torch.tensor(x)))
