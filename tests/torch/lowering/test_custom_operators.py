"""Operators of torch.library: their gradients, writes to arguments, views of them."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.torch.beside_torch import assert_same_gradients, assert_same_values

pytestmark = pytest.mark.sample(every=4)

X = np.array([1, -2, 3, 0.5], np.float32)
LIBRARY = torch.library.Library("anyjax_aliasing", "DEF")
OPS = torch.ops.anyjax_aliasing


def define(schema, function, key):
    LIBRARY.define(schema)
    LIBRARY.impl(schema.partition("(")[0], function, key)


def add_(x, y):
    return x.add_(y)


def double(x):
    x.mul_(2)


def filter_into(waveform, coefficients, out):
    """A recursive filter, sample by sample, as torchaudio's."""
    size = len(coefficients)
    for i in range(waveform.shape[1]):
        past = out[:, i : i + size]
        out[:, i + size] = waveform[:, i] - past @ coefficients


define("add_(Tensor(a!) x, Tensor y) -> Tensor(a!)", add_, "CompositeExplicitAutograd")
define("tail(Tensor(a) x) -> Tensor(a)", lambda x: x[1:], "CompositeImplicitAutograd")
define("double(Tensor(a!) x) -> ()", double, "CompositeExplicitAutograd")
define("filter(Tensor w, Tensor c, Tensor(a!) out) -> ()", filter_into, "CPU")
LIBRARY.define("without(Tensor(a!) x) -> ()")


@torch.library.custom_op("anyjax_aliasing::count", mutates_args={"seen"})
def count(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Adds to what was seen."""
    seen.add_(x)
    return x * 2


def written(x):
    y = x * 1
    return OPS.add_(y, x), y


def through_a_view(x):
    y = x * 1
    OPS.tail(y).mul_(3)
    OPS.double.default(y)
    return y


def filtered(x, c):
    out = torch.zeros(2, 2 + 6)
    OPS.filter(x, c, out)
    return out


def counted(x):
    seen = torch.ones(4)
    return OPS.count(x, seen), seen


@pytest.mark.parametrize("function", [written, through_a_view, counted])
def test_writes_and_views(function):
    assert_same_values(function, X)


def test_a_filter_sample_by_sample():
    """In plain torch it is the same program, with gradients, which the operator has none of."""
    x = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    c = np.array([0.3, -0.5], np.float32)
    assert_same_values(filtered, x, c, reduction=16)

    def plain(x, c):
        out = torch.zeros(2, 2 + 6)
        filter_into(x, c, out)
        return out

    assert_same_values(plain, x, c, reduction=16)

    def rows(x, c):
        """The same without writes, which torch's autograd would refuse."""
        out = [torch.zeros(2), torch.zeros(2)]
        for i in range(6):
            out.append(x[:, i] - torch.stack(out[-2:], 1) @ c)
        return torch.stack(out, 1)

    assert_same_gradients(rows, x, c, reduction=64)


def test_without_python_code():
    with pytest.raises(anyjax.errors.Unsupported, match="no Python code"):
        anyjax.from_torch(lambda x: OPS.without(x * 1))(X)


@torch.library.custom_op("anyjax_aliasing::scaled", mutates_args=())
def scaled(xs: list[torch.Tensor], by: float, *, more: float = 2.0) -> list[torch.Tensor]:
    """Steps, whose gradient is not theirs."""
    return [x.round() * by * more for x in xs]


def keep(ctx, inputs, keyword_only_inputs, output):
    ctx.save_for_backward(*inputs[0])
    ctx.slope = inputs[1] * keyword_only_inputs["more"]


scaled.register_fake(lambda xs, by, *, more=2.0: [torch.empty_like(x) for x in xs])
scaled.register_autograd(
    lambda ctx, grads: ([g * ctx.slope * x for g, x in zip(grads, ctx.saved_tensors)], None),
    setup_context=keep,
)


@torch.library.custom_op("anyjax_aliasing::step", mutates_args=())
def step(x: torch.Tensor) -> torch.Tensor:
    """Rounds."""
    return x.round()


step.register_fake(torch.empty_like)
step.register_autograd(lambda ctx, grad: 4 * grad)
step.register_vmap(lambda info, dims, x: (step(x), dims[0]))
define("floor(Tensor x) -> Tensor", torch.floor, "CPU")
torch.library.register_autograd("anyjax_aliasing::floor", lambda ctx, grad: 9 * grad, lib=LIBRARY)


class Ceil(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return OPS.ceil(x)

    @staticmethod
    def backward(ctx, grad):
        return 8 * grad


define("ceil(Tensor x) -> Tensor", torch.ceil, "CompositeExplicitAutograd")
LIBRARY.impl("ceil", Ceil.apply, "Autograd")
GRADIENTS = {
    "lists and keywords": lambda x: sum(OPS.scaled([x, x * 2], 3.0, more=5.0)) * x,
    "inside vmap": lambda x: torch.vmap(lambda x: OPS.step(x) * x)(x),
    "by itself": lambda x: OPS.step(x) * x,
    "registered": lambda x: OPS.floor(x) * x,
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_registered_gradients(name):
    assert_same_values(GRADIENTS[name], X)
    assert_same_gradients(GRADIENTS[name], X)


def test_a_kernel_of_autograd():
    model = anyjax.from_torch(lambda x: OPS.ceil(x) * x)
    np.testing.assert_array_equal(model(X), np.ceil(X) * X)
    slope = jax.grad(lambda x: model.apply({}, x).sum())(X)
    np.testing.assert_allclose(slope, 8 * X + np.ceil(X))
