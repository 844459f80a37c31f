"""What no operator computes is on the tape, too: custom functions, branches, checkpoints."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.torch.autograd.tape import Tape
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32))
grad = torch.autograd.grad


class Weighted(torch.autograd.Function):
    """A square whose gradient is half as large again as it should be."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x**2 * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return 3 * x * w * g, (x**2 * g).sum(0)


def custom(x):
    z = x if x.requires_grad else x.clone().requires_grad_()
    return grad(Weighted.apply(z, torch.full((3,), 2.0)).sum(), z, create_graph=True)[0]


def checkpointed(x):
    z = x if x.requires_grad else x.clone().requires_grad_()
    inside = lambda a: (a.sin() * z) ** 2
    y = torch.utils.checkpoint.checkpoint(inside, z, use_reentrant=False)
    return grad(y.sum(), z, create_graph=True)[0]


def branch(x):
    z = x.clone().requires_grad_()
    both = lambda a: (a * 2).sum(), lambda a: (a**2).sum()
    return grad(torch.cond(z.sum() > 0, *both, (z,)), z)[0]


@pytest.mark.parametrize("function", [custom, checkpointed, branch])
def test_gradients(function):
    model = anyjax.from_torch(function)
    assert_close(jax.jit(model.apply)({}, X.numpy()), function(X).detach(), reduction=10)
    if function is branch:
        return
    x = X.clone().requires_grad_()
    (function(x) ** 2).sum().backward()
    total = lambda x: (model.apply({}, x) ** 2).sum()
    assert_close(jax.grad(total)(X.numpy()), x.grad, reduction=100)


def test_a_branch_that_closes_over():
    """What a branch closes over counts, which torch itself refuses."""

    def function(x):
        z = x.clone().requires_grad_()
        y = torch.cond(x.sum() > 1e3, lambda a: a.sum(), lambda a: (a * z**2).sum(), (x,))
        return grad(y, z)[0]

    got = jax.jit(anyjax.from_torch(function).apply)({}, X.numpy())
    assert_close(got, 2 * X**2, reduction=3)


def test_dropout_is_the_same_in_the_gradient():
    def function(x):
        z = x.clone().requires_grad_()
        y = torch.nn.functional.dropout(z, 0.5)
        return y, grad((y * x).sum(), z)[0]

    y, slope = anyjax.from_torch(function)(X.numpy(), rng=jax.random.key(0))
    assert_close(slope * X.numpy(), y * X.numpy(), reduction=3)
    assert (np.asarray(slope) == 0).any() and (np.asarray(slope) == 2 * X.numpy()).any()


def test_needs_input_grad_is_as_torch_says():
    said = []

    class Watching(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            said.append(ctx.needs_input_grad)
            return x * w

        @staticmethod
        def backward(ctx, g):
            return g, g.sum(0)

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            return Watching.apply(x, self.w)

    model = anyjax.from_torch(Module())
    jax.grad(lambda x: model.apply(model.params, x).sum())(X.numpy())
    model(X.numpy().astype(np.int32))
    assert said == [(True, True), (False, True)]


def test_programs_that_never_ask_keep_none():
    model = anyjax.from_torch(torch.nn.Linear(3, 3))
    model(X.numpy())
    assert Tape not in model.source.cache.notes
    asking = anyjax.from_torch(custom)
    asking(X.numpy())
    assert Tape in asking.source.cache.notes


SPLITS = {
    "chunk": lambda h: h.chunk(2, -1),
    "unbind": lambda h: [column[:, None] for column in h.unbind(1)],
    "var_mean": lambda h: torch.var_mean(h, 1, keepdim=True),
}


@pytest.mark.parametrize("name", SPLITS)
def test_two_results_of_one_operator(name):
    def slope(x, h):
        a, b = SPLITS[name](h)
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = x * x * a + b * x
        return grad(y.sum(), x, create_graph=True)[0]

    x, h = X[:, :1], X[:, :2].clone().requires_grad_()
    want = slope(x, h)
    (want**2).sum().backward()
    model = anyjax.from_torch(slope)
    run = lambda h: model.apply({}, x.numpy(), h)
    assert_close(run(h.detach().numpy()), want.detach(), reduction=3)
    got = jax.grad(lambda h: (run(h) ** 2).sum())(h.detach().numpy())
    assert_close(got, h.grad, reduction=20)
