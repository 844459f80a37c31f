"""A gradient of results that are cut off is zero, and says so."""

import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import LostGradient

X = np.ones((2, 3), np.float32)


def frozen(x):
    with torch.no_grad():
        return x * 2


@pytest.mark.parametrize(
    "function", [frozen, lambda x: (x * 2).detach(), torch.no_grad()(torch.sin)]
)
def test_it_warns(function):
    model = anyjax.from_torch(lambda x: function(x))
    model(X)
    jax.vmap(lambda x: model.apply({}, x))(X)
    with pytest.warns(LostGradient, match="zero"):
        slope = jax.jit(jax.grad(lambda x: model.apply({}, x).sum()))(X)
    assert not slope.any()


def test_it_does_not_where_a_result_has_one_or_nothing_is_asked():
    model = anyjax.from_torch(lambda x, y: (frozen(x), x + y))
    jax.grad(lambda x: model.apply({}, x, X)[1].sum())(X)
    teacher = anyjax.from_torch(nn.Linear(3, 2))
    cut = anyjax.from_torch(frozen)
    loss = lambda params: (teacher.apply(params, X).sum() - cut.apply({}, X).sum()) ** 2
    assert jax.grad(loss)(teacher.params)["weight"].any()
