"""Rows that a mask chose, sorted, and the largest of them."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

RNG = np.random.default_rng(0)
X = RNG.integers(-5, 5, (9, 3)).astype(np.float32)
X[4, 1] = np.nan
MASKS = [X[:, 0] > 0, X[:, 0] > 9, X[:, 0] < 9]

FUNCTIONS = {
    "sort": lambda rows: rows.sort(0).values,
    "descending": lambda rows: rows.sort(0, descending=True).values,
    "places": lambda rows: rows[:, 0].sort(stable=True).indices,
    "along rows": lambda rows: rows.sort(1).values.sum(),
    "ranks": lambda rows: rows[:, 2].argsort(stable=True).argsort(),
    "at most four": lambda rows: rows[:, 0].topk(torch.sym_min(4, rows.shape[0])).values,
    "smallest": lambda rows: rows.topk(torch.sym_min(2, rows.shape[0]), 0, largest=False).values,
    "used": lambda rows: rows[rows[:, 0].topk(torch.sym_min(3, rows.shape[0])).indices, 0].sum(),
    "integers": lambda rows: rows[:, 0].to(torch.int32).sort(descending=True).values,
}


@pytest.mark.parametrize("mask", range(len(MASKS)))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_of_a_mask(name, mask):
    function = lambda x, mask: FUNCTIONS[name](x[mask])
    want = function(torch.tensor(X), torch.tensor(MASKS[mask])).numpy()
    out = jax.jit(anyjax.from_torch(function).apply)({}, X, MASKS[mask])
    values = out.values[: int(out.length)] if isinstance(out, anyjax.CountedArray) else out
    assert_close(np.asarray(values), want, reduction=8)


def test_gradient():
    def function(x, mask):
        rows = x[mask]
        largest = rows.topk(torch.sym_min(2, rows.shape[0]), 0).values
        return (largest**2).sum() + (rows.sort(0).values.cumsum(0) * rows).sum()

    x = torch.tensor(np.nan_to_num(X) + np.arange(27).reshape(9, 3) / 99, requires_grad=True)
    function(x, torch.tensor(MASKS[0])).backward()
    model = anyjax.from_torch(function)
    slope = jax.jit(jax.grad(lambda x, mask: model.apply({}, x, mask)))
    assert_close(slope(x.detach().numpy(), MASKS[0]), x.grad.numpy(), rtol=1e-5)


def test_fewer_than_are_asked_for():
    model = anyjax.from_torch(lambda x, mask: x[mask][:, 0].topk(4).values)
    call = jax.jit(model.apply)
    assert not np.isnan(call({}, X, MASKS[2])).any()
    assert np.isnan(call({}, X, X[:, 0] > 3)).all()
