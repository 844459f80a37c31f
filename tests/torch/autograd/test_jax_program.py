"""Functions of arrays inside of torch.func, in a model that is converted."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.func import grad, vmap

import anyjax
from anyjax.errors import Unsupported
from anyjax.torch import from_jax

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 3, 2)
row = from_jax(lambda x, scale: {"y": jnp.cumsum(x * scale, 0), "n": x.shape[0]})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_vmap_inside_of_a_model(axis):
    function = lambda x: vmap(lambda y: row(y, 2.0)["y"], in_dims=axis)(x)
    expected = vmap(lambda y: (2 * y).cumsum(0), in_dims=axis)(torch.from_numpy(X))
    np.testing.assert_allclose(anyjax.from_torch(function)(X), expected, rtol=1e-6)


def test_vmap_of_vmap_sees_each_element():
    shapes = []
    seen = from_jax(lambda x: shapes.append(x.shape) or x + x.size)
    out = anyjax.from_torch(lambda x: vmap(vmap(seen), in_dims=1)(x))(X)
    assert shapes[0] == (2,)
    np.testing.assert_allclose(out, X.swapaxes(0, 1) + 2)


def test_grad_inside_of_a_model_is_refused():
    with pytest.raises(Unsupported, match=r"inside torch\.func"):
        anyjax.from_torch(grad(lambda x: row(x, 1.0)["y"].sum()))(X)
