"""Elements at places that values choose."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


def test_places_from_behind():
    function = lambda x: x[(x[:, 0] > 0).nonzero(as_tuple=True)[0][-2:]].sum(0)
    assert_close(jax.jit(anyjax.from_torch(function).apply)({}, X), function(torch.from_numpy(X)))


def test_masks_with_further_indices():
    module = lambda x: (x[x[:, 0] > 0, 1].sum(), x[x[:, 0] > 0, None, 1:].sum())
    for got, want in zip(anyjax.from_torch(module)(X), module(torch.from_numpy(X))):
        assert_close(got, want.numpy(), reduction=32)


def both_kinds(x, mask, other):
    """Another layer for the rows of a mask than for the rest, put back where they were."""
    kind = mask.unsqueeze(-1)
    out = x.masked_scatter(kind, torch.tanh(x[mask]))
    return out.masked_scatter(~kind, 2 * x[~mask])


@pytest.mark.parametrize("shape", [(6, 4), (2, 3, 4)])
def test_rows_put_back_by_their_mask(shape):
    x = X.reshape(shape)
    mask = x[..., 0] > 0
    model, tensor = anyjax.from_torch(both_kinds), torch.tensor(x, requires_grad=True)
    want = both_kinds(tensor, torch.tensor(mask), None)
    assert_close(jax.jit(model.apply)({}, x, mask, mask), want.detach().numpy(), reduction=32)
    (want**2).sum().backward()
    loss = lambda x, mask: (model.apply({}, x, mask, mask) ** 2).sum()
    assert_close(jax.jit(jax.grad(loss))(x, mask), tensor.grad.numpy(), rtol=1e-5)


def test_more_places_than_rows():
    model = anyjax.from_torch(lambda x, m, n: x.masked_scatter(n[:, None], torch.tanh(x[m])))
    call, mask = jax.jit(model.apply), X[:, 0] > 0
    more = mask | (np.arange(6) == mask.argmin())
    assert not np.isnan(call({}, X, more, mask)).any()
    assert np.isnan(call({}, X, mask, more)).all()
