"""Derivatives of loaded models: the gradient, and errors of ours for all others."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import Unsupported

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)


class Looked(nn.Module):
    """Floats and whole numbers, of which one has no gradient, in and out."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 2)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x, i):
        return x * self.table(i).tanh(), i + self.count, x.sin()


def loaded(module, folder, *args, **options):
    anyjax.from_torch(module).save(folder, *args, platforms=("cpu",), **options)
    return anyjax.load(folder)


@pytest.mark.parametrize("pickled", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients(tmp_path, pickled, compiled):
    module, i = Looked(), np.array([0, 4, 4])
    model = loaded(module, tmp_path / "m", X, i)
    model = pickle.loads(pickle.dumps(model)) if pickled else model
    loss = lambda params, x: (model.apply(params, x, i)[0] * jnp.cos(x)).sum()
    slope = jax.grad(loss, argnums=(0, 1))
    of_params, of_x = (jax.jit(slope) if compiled else slope)(model.params, X)
    x = torch.tensor(X, requires_grad=True)
    (module(x, torch.tensor(i))[0] * x.cos()).sum().backward()
    np.testing.assert_allclose(of_x, x.grad, rtol=1e-5, atol=1e-6)
    want = module.table.weight.grad
    np.testing.assert_allclose(of_params["table.weight"], want, rtol=1e-5, atol=1e-6)


def test_a_gradient_at_an_open_size(tmp_path):
    model = loaded(nn.Tanh(), tmp_path / "m", X, shapes={"input": "n, ..."})
    longer = np.tile(X, (3, 1))
    slope = jax.jit(jax.grad(lambda x: model.apply({}, x).sum()))(longer)
    np.testing.assert_allclose(slope, 1 - np.tanh(longer) ** 2, rtol=1e-5, atol=1e-6)


def loss_of(model):
    return lambda x: model.apply({}, x).sum()


@pytest.mark.parametrize(
    ("transformed", "said"),
    [
        (lambda f: jax.jvp(f, (X,), (X,)), "forward-mode"),
        (lambda f: jax.linearize(f, X)[1](X), "forward-mode"),
        (lambda f: jax.jacfwd(f)(X), "forward-mode"),
        (lambda f: jax.hessian(f)(X), "forward-mode"),
        (lambda f: jax.jit(jax.hessian(f))(X), "forward-mode"),
        (lambda f: jax.grad(lambda x: (jax.grad(f)(x) * x).sum())(X), "a second derivative"),
        (lambda f: jax.jvp(jax.grad(f), (X,), (X,)), "forward-mode"),
        (lambda f: jax.jacrev(lambda x: f(x) * x[0])(X), "jax.vmap over Tanh"),
    ],
)
def test_other_derivatives_are_refused(tmp_path, transformed, said):
    model = loaded(nn.Tanh(), tmp_path / "m", X)
    with pytest.raises(Unsupported, match=said):
        transformed(loss_of(model))


def test_the_way_out_that_the_error_names(tmp_path):
    loaded(nn.Tanh(), tmp_path / "m", X[0])
    program = anyjax.from_stablehlo(tmp_path / "m" / "call-0.jax")
    outputs = lambda x: jax.tree.leaves(program.apply({}, {}, {}, [x], None))
    hessian = jax.hessian(lambda x: outputs(x)[0].sum())(X[0])
    want = torch.func.hessian(lambda x: x.tanh().sum())(torch.tensor(X[0]))
    np.testing.assert_allclose(hessian, want, rtol=1e-5, atol=1e-6)
