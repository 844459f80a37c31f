"""torch.autograd.Function: its own backward is what jax.grad uses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import ForwardFailed, Unsupported
from tests.tolerance import assert_close
from tests.torch.beside_torch import assert_same_gradients

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


def test_known_values_stay_known():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, steps):
            ctx.last = float(steps[-1])
            return x * ctx.last

        @staticmethod
        def backward(ctx, grad):
            assert ctx.needs_input_grad == (True, False)
            return grad * ctx.last, None

    function = lambda x: Scaled.apply(x, torch.linspace(0, 2, 3))
    assert_close(anyjax.from_torch(function)(X), 2 * X)
    assert_same_gradients(function, X)


class Solved(torch.autograd.Function):
    """An implicit layer: its backward differentiates what it was given."""

    @staticmethod
    def forward(ctx, function, x, *weights):
        ctx.function = function
        ctx.save_for_backward(x, *weights)
        return function(x)

    @staticmethod
    def backward(ctx, grad):
        x, *weights = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = ctx.function(x)
        return None, *torch.autograd.grad(y, [x, *weights], grad)


def test_backward_differentiates_a_closure():
    class Implicit(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(6, 2)

        def forward(self, x):
            shift = x.detach().mean()
            step = lambda x: (self.layer(x) + shift).tanh()
            return Solved.apply(step, x, *self.layer.parameters()).sum()

    module = Implicit()
    given = torch.from_numpy(X).requires_grad_()
    module(given).backward()
    model = anyjax.from_torch(module)
    other = {k: 0.5 * v for k, v in model.params.items()}  # not the module's own
    for params, x in ((model.params, X), (other, X)):
        module.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in params.items()})
        module.zero_grad()
        given.grad = None
        module(given).backward()
        got, slope = jax.grad(jax.jit(model.apply), (0, 1))(params, x)
        assert_close(slope, given.grad, reduction=20)
        assert_close(got["layer.weight"], module.layer.weight.grad, reduction=20)


class Outer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, x):
        ctx.save_for_backward(weight, x)
        return weight @ x

    @staticmethod
    def backward(ctx, grad):
        weight, x = ctx.saved_tensors
        return grad.outer(x), weight.mT @ grad


class Product(Outer):
    """Its backward asks autograd for the gradient of a sum that the cotangent weighs."""

    @staticmethod
    def backward(ctx, grad):
        weight, x = ctx.saved_tensors
        with torch.enable_grad():
            loss = (grad * (weight @ x)).sum().requires_grad_(True)
            (of_weight,) = torch.autograd.grad(loss, [weight], allow_unused=True)
        return of_weight, weight.mT @ grad


class Detached(Outer):
    """As ``Product``, by another Function of a detached tensor: linear_operator has both."""

    @staticmethod
    def backward(ctx, grad):
        weight, x = ctx.saved_tensors
        inside = weight.detach().requires_grad_(True)
        with torch.enable_grad():
            (of_weight,) = torch.autograd.grad((grad * Outer.apply(inside, x)).sum(), [inside])
        return of_weight, weight.mT @ grad


@pytest.mark.parametrize("cls", [Product, Detached])
def test_backward_differentiates_what_its_cotangent_weighs(cls):
    def function(x):
        once = cls.apply((x + x[:, None]).sin(), x.exp())
        return cls.apply((x - 2 * x[:, None]).exp(), once.sin())

    assert_same_gradients(function, X)


def test_backward_differentiates_by_a_detached_argument():
    def function(x):
        weight = (x + x[:, None]).sin()
        return Detached.apply(weight, Detached.apply(weight, x.exp()))

    assert_same_gradients(function, X)


class Returned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return -grad


class Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[1:3]

    @staticmethod
    def backward(ctx, grad):
        return torch.nn.functional.pad(-grad, (1, 3))


@pytest.mark.parametrize("cls", [Returned, Rows])
def test_a_result_that_is_an_argument_or_a_view_of_one(cls):
    def written(x):
        with torch.no_grad():
            h = x * 1
            y = cls.apply(h)
            y.add_(1)
            h.mul_(2)
            return torch.cat([h, y])

    assert_close(anyjax.from_torch(written)(X), written(torch.from_numpy(X)))
    assert_same_gradients(lambda x: cls.apply(x) * 2, X)


@pytest.mark.filterwarnings("ignore::anyjax.errors.StateDropped")
def test_arguments_that_forward_writes_to():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, seen):
            x.mul_(2)
            seen.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 5, None

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            h = x * 1
            y = Doubled.apply(h[:3], self.seen)
            return h * x + y.sum()

    given = torch.from_numpy(X).requires_grad_()
    want = Counting()(given)
    want.sum().backward()
    model = anyjax.from_torch(Counting())
    got, state = model.apply({}, X, mutable=True)
    assert_close(got, want.detach(), reduction=4)
    assert state["seen"] == 1
    slope = jax.grad(lambda x: model.apply({}, x).sum())(X)
    assert_close(slope, given.grad, reduction=8)


def test_the_same_argument_twice_and_one_that_was_broadcast():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return grad * y, grad * x

    assert_same_gradients(lambda x: Product.apply(x, x), X)
    rows = torch.arange(12.0).reshape(2, 6)
    assert_same_gradients(lambda x: Product.apply(rows, x), X)


def test_complex_gradients_are_torchs():
    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z):
            ctx.save_for_backward(z)
            return z * z

        @staticmethod
        def backward(ctx, grad):
            return grad * 2 * ctx.saved_tensors[0].conj()

    assert_same_gradients(lambda x: Squared.apply(torch.complex(x, x * 2)).imag * x, X)


def test_none_for_what_nothing_was_computed_from():
    class Three(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2, x.argmax()

        @staticmethod
        def backward(ctx, first, second, index):
            assert index is None
            return (7 if second is None else 10 * second) * (1 if first is None else first)

    for places in ([0], [1], [0, 1]):
        assert_same_gradients(lambda x, p=places: sum(Three.apply(x)[i] for i in p), X)


def test_a_backward_that_fails_does_so_where_a_gradient_is_asked_for():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("never")

    model = anyjax.from_torch(lambda x: Broken.apply(x))
    assert_close(model(X), 2 * X)
    with pytest.raises(ForwardFailed, match="Broken raises ValueError: never") as caught:
        jax.grad(lambda x: model.apply({}, x).sum())(X)
    assert "test_custom_function.py" in caught.value.where
