"""Operators without a lowering, run in torch by a callback."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import DataDependent, MissingOps, TorchCallback, WrongArguments
from anyjax.torch.engine import callback
from tests.tolerance import assert_close

X = np.linspace(0.5, 2, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(scope="module")
def ops():
    """An operator with a kernel, a shape and a derivative; a random one; one without a shape."""
    library = torch.library.Library("callback_test", "FRAGMENT")
    library.define("cube(Tensor x, Tensor index, float factor=1.0) -> (Tensor, Tensor)")

    def cube(x, index, factor=1.0):
        return torch.from_numpy(x.numpy()[index.numpy()] ** 3 * np.float32(factor)), index * 2

    def fake(x, index, factor=1.0):
        return x[index], index * 2

    library.impl("cube", cube, "CPU")
    torch.library.register_fake("callback_test::cube", fake, lib=library)
    torch.library.register_autograd(
        "callback_test::cube",
        lambda ctx, grad, _: (
            torch.zeros_like(ctx.x).index_add(0, ctx.index, 3 * ctx.x[ctx.index] ** 2 * grad)
            * ctx.factor,
            None,
            None,
        ),
        setup_context=lambda ctx, inputs, output: ctx.__dict__.update(
            zip(("x", "index", "factor"), inputs)
        ),
        lib=library,
    )
    library.define("noise(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    library.impl("noise", lambda x: x + torch.randn(x.shape), "CPU")
    torch.library.register_fake("callback_test::noise", torch.empty_like, lib=library)
    library.define("shapeless(Tensor x) -> Tensor")
    library.impl("shapeless", lambda x: x[torch.from_numpy(x.numpy() > 1)], "CPU")
    yield torch.ops.callback_test
    library._destroy()


@pytest.fixture(autouse=True)
def fresh():
    callback.SAID.clear()


def model_of(function):
    return anyjax.from_torch(function, on_missing="callback")


@pytest.mark.filterwarnings("ignore::anyjax.errors.TorchCallback")
def test_values_and_gradients_are_torchs(ops):
    function = lambda x, i: ops.cube(x * 2, i, 0.5)[0].sin()
    model, index = model_of(function), np.array([1, 0, 1])
    got = jax.jit(model.apply)({}, X, index)
    tx = torch.tensor(X, requires_grad=True)
    want = function(tx, torch.tensor(index))
    np.testing.assert_allclose(got, want.detach(), rtol=1e-6)
    (want**2).sum().backward()
    grad = jax.jit(jax.grad(lambda x: (model.apply({}, x, index) ** 2).sum()))(X)
    np.testing.assert_allclose(grad, tx.grad, rtol=1e-5)
    np.testing.assert_allclose(model.apply({}, X, index), got, rtol=1e-6)
    many = jax.vmap(lambda x: model.apply({}, x, index))(jnp.stack([X, X + 1]))
    np.testing.assert_allclose(
        many[1], function(torch.tensor(X + 1), torch.tensor(index)), rtol=1e-6
    )


@pytest.mark.filterwarnings("ignore::anyjax.errors.TorchCallback")
def test_integers_keep_torchs_dtype_inside(ops):
    def function(x, i):
        doubled = ops.cube(x, i)[1]
        assert doubled.dtype is torch.int64
        return doubled

    assert model_of(function)(X, np.array([1, 0])).tolist() == [2, 0]


@pytest.mark.filterwarnings("ignore::anyjax.errors.TorchCallback")
def test_random_operators_follow_the_key(ops):
    model = model_of(lambda x: (ops.noise(x), ops.noise(x)))
    run = jax.jit(lambda key: model.apply({}, X, rng=key))
    one, two = run(jax.random.key(0))
    assert not np.array_equal(one, two)
    np.testing.assert_array_equal(one, run(jax.random.key(0))[0])
    assert not np.array_equal(one, run(jax.random.key(1))[0])


def test_it_says_so_once(ops):
    model = model_of(lambda x, i: ops.cube(x, i)[0])
    with pytest.warns(TorchCallback, match="callback_test.cube.*test_callback.py") as said:
        jax.jit(model.apply)({}, X, np.array([0]))
        model.apply({}, X, np.array([1]))
    assert len(said) == 1


def test_without_it_the_error_names_the_way(ops):
    with pytest.raises(MissingOps, match='on_missing="callback"'):
        anyjax.from_torch(lambda x, i: ops.cube(x, i)[0])(X, np.array([0]))


@pytest.mark.filterwarnings("ignore::anyjax.errors.TorchCallback")
def test_a_result_of_unknown_shape_is_refused(ops):
    with pytest.raises(DataDependent, match="does not tell the shape"):
        model_of(ops.shapeless)(X)


def test_another_word_is_refused():
    with pytest.raises(WrongArguments, match="on_missing='ignore'"):
        anyjax.from_torch(torch.nn.ReLU(), on_missing="ignore")


def test_derivatives_of_derivatives():
    """An operator whose derivative, and the derivative of that, are operators of their own."""
    library = torch.library.Library("callback_orders", "FRAGMENT")
    numpy = lambda *tensors: [x.detach().numpy() for x in tensors]
    kernels = {
        "sine": lambda x: np.sin(*numpy(x)),
        "slope": lambda g, x: numpy(g)[0] * np.cos(*numpy(x)),
        "curve": lambda g, x: -numpy(g)[0] * np.sin(*numpy(x)),
    }
    for name, kernel in kernels.items():
        tensors = ", ".join(f"Tensor {x}" for x in ("g", "x")[name == "sine" :])
        library.define(f"{name}({tensors}) -> Tensor")
        library.impl(name, lambda *x, kernel=kernel: torch.from_numpy(kernel(*x)), "CPU")
        fake = lambda *x: torch.empty_like(x[-1])
        torch.library.register_fake(f"callback_orders::{name}", fake, lib=library)
    ops = torch.ops.callback_orders
    for name, back in {
        "sine": lambda ctx, g: ops.slope(g, *ctx.inputs),
        "slope": lambda ctx, g: (
            ops.slope(g, ctx.inputs[1]),
            ops.curve(g * ctx.inputs[0], ctx.inputs[1]),
        ),
    }.items():
        keep = lambda ctx, inputs, output: setattr(ctx, "inputs", inputs)
        torch.library.register_autograd(
            f"callback_orders::{name}", back, setup_context=keep, lib=library
        )

    def force(x, weight):
        x = x.requires_grad_()
        energy = ops.sine(x * weight).pow(2).sum()
        return torch.autograd.grad(energy, x, create_graph=True)[0]

    weight = X[::-1] / 2
    with pytest.warns(TorchCallback):
        got = jax.jit(jax.grad(lambda w: model_of(force)(X, w).sum()))(weight)
    leaf = torch.tensor(weight).requires_grad_()
    force(torch.tensor(X), leaf).sum().backward()
    assert_close(got, leaf.grad.numpy(), reduction=10)
    library._destroy()
