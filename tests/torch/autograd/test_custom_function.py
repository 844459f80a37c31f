"""torch.autograd.Function: its own backward is what jax.grad uses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

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
    model = anyjax.from_torch(function)
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
    anyjax.from_torch(rounding)(X)
    x = torch.ones(2, requires_grad=True)
    rounding(x).sum().backward()
    assert_close(x.grad, np.full(2, 4.0, np.float32))


class Triple(torch.autograd.Function):
    """Its gradient is not that of its forward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


triple = Triple.apply  # bound before any trace, as most code does


@pytest.mark.parametrize("function", [triple, torch.vmap(triple)], ids=["plain", "vmap"])
def test_its_backward_counts_under_another_name_and_in_vmap(function):
    x = X.reshape(2, 3)
    model = anyjax.from_torch(lambda x: function(x))
    assert_close(model(x), np.round(x))
    assert_close(jax.grad(lambda x: model.apply({}, x).sum())(x), np.full_like(x, 3))


def test_inside_grad_is_refused():
    model = anyjax.from_torch(lambda x: torch.func.grad(lambda y: triple(y).sum())(x))
    with pytest.raises(Unsupported, match=r"torch\.func"):
        model(X)


def test_an_output_that_is_no_tensor():
    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return "name", x * 2

        @staticmethod
        def backward(ctx, nothing, grad):
            assert nothing is None
            return grad * 5

    def function(x):
        name, y = Pair.apply(x)
        assert name == "name"
        return y

    model = anyjax.from_torch(function)
    assert_close(jax.grad(lambda x: model.apply({}, x).sum())(X), np.full_like(X, 5))


def test_index_inside_vmap():
    """transformers' masks read a padding mask so."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    def function(x):
        at = torch.arange(3)
        row = torch.vmap(lambda i, j: x[i, j] > 0, (None, 0))
        with TransformGetItemToIndex():
            return torch.vmap(row, (0, None))(at, at)

    x = np.arange(9, dtype=np.float32).reshape(3, 3) - 4
    model = anyjax.from_torch(function)
    np.testing.assert_array_equal(jax.jit(lambda x: model.apply({}, x))(x), x > 0)
