"""Reductions, and what XLA makes of them in larger programs."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

RNG = np.random.default_rng(0)
X, W = (RNG.standard_normal(s).astype(np.float32) for s in ((32, 5, 64), (2, 16, 64)))
REDUCED = {
    "sum": lambda x: x.sum(1),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(1),
    "max": lambda x: x.max(1).values,
    "aminmax": lambda x: x.aminmax(dim=1).max,
    "mean": lambda x: x.mean(1),
    "nansum": lambda x: x.nansum(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "norm": lambda x: x.norm(dim=1),
    "cumsum": lambda x: x.cumsum(1)[:, -1],
    "max_pool": lambda x: torch.nn.functional.max_pool2d(x[None], (5, 1))[0, :, 0],
}


@pytest.mark.parametrize("name", REDUCED)
def test_reduced_and_spread_into_a_product(name):
    """XLA's CPU kernels have given NaN here."""
    function = lambda x, w: torch.bmm(w, REDUCED[name](x).expand(2, 32, 64).mT)
    got = jax.jit(anyjax.from_torch(function).apply)({}, X, W)
    assert_close(got, function(torch.from_numpy(X), torch.from_numpy(W)).numpy(), reduction=320)


def test_the_gradient_of_a_sum_that_is_spread():
    def loss(w, x):
        spread = torch.bmm(w, x.mT).sum(1)[:, None].expand(2, 7, 32)
        return (spread * torch.arange(7.0)[:, None] * w[:1, :7, :32]).sum()

    x = X[:32, 0][None].repeat(2, 0)
    got = jax.jit(jax.grad(anyjax.from_torch(loss).apply, argnums=(1, 2)))({}, W, x)
    inputs = [torch.from_numpy(v).requires_grad_() for v in (W, x)]
    want = torch.autograd.grad(loss(*inputs), inputs)
    assert_close(got, tuple(want), reduction=2000)
