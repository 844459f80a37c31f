"""torch.autograd.Function: its own backward is what jax.grad uses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import tojax
from tests.tolerance import assert_close

X = np.linspace(-2, 2, 6, dtype=np.float32)


class RoundThrough(torch.autograd.Function):
    """Straight-through estimator: rounds, and passes the gradient."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return (x * scale).round()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


class Clipped(torch.autograd.Function):
    """Two outputs, an integer input, saved tensors, setup_context."""

    @staticmethod
    def forward(x, index):
        return x[index] * 3, x.argmax()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad, _):
        x, index = ctx.saved_tensors
        return torch.zeros_like(x).index_add(0, index, grad.clamp(-1, 1) * x[index].sign()), None


def rounding(x):
    return RoundThrough.apply(x, 4.0)


def clipping(x):
    return Clipped.apply(x, torch.tensor([0, 4, 4]))[0]


@pytest.mark.parametrize("function", [rounding, clipping])
@pytest.mark.parametrize("order", ["grad of jit", "jit of grad", "grad", "vmap of grad"])
def test_gradient_is_the_functions_own(function, order):
    given = torch.from_numpy(X).requires_grad_()
    want = function(given)
    (want**2).sum().backward()
    model = tojax.from_torch(function)
    loss = lambda x: (model.apply({}, x) ** 2).sum()
    if order == "grad of jit":
        got = jax.grad(jax.jit(loss))(jnp.asarray(X))
    elif order == "jit of grad":
        got = jax.jit(jax.grad(loss))(X)
    elif order == "grad":
        got = jax.grad(loss)(jnp.asarray(X))
    else:
        got = jax.vmap(jax.grad(loss))(X[None])[0]
    assert_close(model(X), want.detach())
    assert_close(got, given.grad, reduction=3)


def test_outside_a_trace_torch_is_untouched():
    tojax.from_torch(rounding)(X)
    x = torch.ones(2, requires_grad=True)
    rounding(x).sum().backward()
    assert_close(x.grad, np.full(2, 4.0, np.float32))
