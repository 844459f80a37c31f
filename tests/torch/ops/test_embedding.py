"""Tokens and classes that a table does not have: torch raises, a program gives NaN."""

import jax
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import anyjax
from anyjax.errors import ForwardFailed
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

TABLE = torch.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize("index", [-1, 4])
def test_tokens_outside_the_table(index):
    model = anyjax.from_torch(lambda ids, table: F.embedding(ids, table))
    ids = np.array([[1, index], [3, 0]])
    with pytest.raises(IndexError):
        F.embedding(torch.tensor(ids), TABLE)
    with pytest.raises(ForwardFailed, match="out of range in a table of 4 rows"):
        model.apply({}, ids, TABLE.numpy())
    out = model(ids, TABLE.numpy())
    nan = [np.nan] * 3
    np.testing.assert_array_equal(out, [[[3, 4, 5], nan], [[9, 10, 11], [0, 1, 2]]])


def test_tables_of_integers_stay_integers():
    model = anyjax.from_torch(lambda ids: F.embedding(ids, TABLE.long()))
    np.testing.assert_array_equal(model(np.array([2, 0])), TABLE[[2, 0]].long())


def test_gradients_of_tokens_inside_are_torch_s():
    ids = torch.tensor([[1, 2, 1], [3, 0, 0]])
    table = TABLE.clone().requires_grad_()
    (F.embedding(ids, table, padding_idx=0) ** 2).sum().backward()
    model = anyjax.from_torch(lambda ids, table: F.embedding(ids, table, padding_idx=0))
    loss = lambda table: (model.apply({}, ids.numpy(), table) ** 2).sum()
    assert_close(jax.jit(jax.grad(loss))(TABLE.numpy()), table.grad)


@pytest.mark.parametrize("function", [F.cross_entropy, F.nll_loss])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_classes_that_there_are_not(function, reduction):
    model = anyjax.from_torch(lambda x, target: function(x, target, reduction=reduction))
    known, unknown = np.array([1, -100, 0, 2]), np.array([1, -100, 3, -1])
    assert_close(
        model(TABLE.numpy(), known),
        function(TABLE, torch.tensor(known), reduction=reduction),
        reduction=8,
    )
    with pytest.raises(IndexError):
        function(TABLE, torch.tensor(unknown), reduction=reduction)
    nan = np.isnan(model(TABLE.numpy(), unknown))
    np.testing.assert_array_equal(nan, [False, False, True, True] if nan.ndim else True)
