"""torch.autograd.Function in derivatives of second order and in forward mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

X = np.linspace(-2, 2, 6, dtype=np.float32)


class Threefold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return 3 * grad


class Kept(torch.autograd.Function):
    """Saves its result; a second derivative goes through it again."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


class Between(torch.autograd.Function):
    """Saves what is neither argument nor result: torch takes it for a constant."""

    @staticmethod
    def forward(ctx, x):
        square = x * x
        ctx.save_for_backward(square)
        return x * square

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0]


@pytest.mark.parametrize("cls", [Kept, Between])
def test_second_derivatives_are_torchs(cls):
    function = lambda x: cls.apply(x) * x
    given = torch.from_numpy(X).requires_grad_()
    (slope,) = torch.autograd.grad(function(given).sum(), given, create_graph=True)
    (want,) = torch.autograd.grad((slope**2).sum(), given)
    model = anyjax.from_torch(function)
    first = jax.grad(lambda x: model.apply({}, x).sum())
    got = jax.jit(jax.grad(lambda x: (first(x) ** 2).sum()))(X)
    assert_close(got, want, reduction=20)
    forward = jax.jvp(first, (jnp.asarray(X),), (2 * first(X),))[1]
    assert_close(forward, want, reduction=20)


class Pushed(torch.autograd.Function):
    """Its jvp is not that of its backward, and reads other tensors."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3, grad * x

    @staticmethod
    def jvp(ctx, x_tangent, y_tangent):
        x, y = ctx.saved_tensors
        return x_tangent * y + y_tangent * x


def test_jvp_is_the_functions_own():
    model = anyjax.from_torch(lambda x: Pushed.apply(x, x.detach()))
    run = lambda x: model.apply({}, x)
    ones = np.ones_like(X)
    assert_close(jax.jit(lambda x: jax.jvp(run, (x,), (ones,))[1])(X), X)
    assert_close(jax.grad(lambda x: run(x).sum())(X), 3 * ones)
    through = anyjax.from_torch(
        lambda x: Threefold.apply(x)
    )  # without a jvp: that of which backward is the transpose
    assert_close(jax.jvp(lambda x: through.apply({}, x), (X,), (ones,))[1], 3 * ones)
