"""Gradients that torch code takes itself, inside of what is converted: as torch's, under jit, and
once more through jax.grad.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import functional

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32))
grad = torch.autograd.grad


def leaf(x):
    """The tensor itself where torch follows it, for jax.grad of the whole; else one of its own."""
    return x if x.requires_grad else x.clone().requires_grad_()


def total_derivative(x):
    x = leaf(x)
    b = x**2
    return grad((b * x).sum(), [x, b], create_graph=True)


def three_times(x):
    x = leaf(x)
    (first,) = grad((x**4).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x, create_graph=True)
    return first, second, grad(second.sum(), x, create_graph=True)[0]


def a_step_against_it(x):
    z = x.detach().clone().requires_grad_()
    (g,) = grad((z**3).sum(), z)
    return x + 0.1 * g.sign() * g


def through_writes(x):
    z = leaf(x)
    y = z * 1
    y[0] *= 3
    y[:, 1].add_(2)
    return grad((y.relu_() ** 2).sum(), z, create_graph=True)[0]


def of_complex(x):
    z = leaf(torch.fft.fft(x).detach())
    g = grad((z.abs() ** 2 + z.real * z.imag).sum(), z)[0]
    return g.real, g.imag


def inside_no_grad(x):
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = y.detach().requires_grad_()
            return grad((z**3).sum(), z)[0]


def into_grad(x):
    w = torch.ones(3, requires_grad=True)
    v = nn.Parameter(x[0] * 2)
    ((x * w) ** 2 * v).sum().backward()
    (w * v).sum().backward(inputs=[w])
    return w.grad, v.grad


def retained(x):
    z = x.clone().requires_grad_()
    y = z * 2
    y.retain_grad()
    torch.autograd.backward([(y**2).sum(), z.sum()])
    return y.grad, z.grad


def unused(x):
    z, w = x.clone().requires_grad_(), torch.ones(2, requires_grad=True)
    some = grad((z**2).sum(), (z, w), allow_unused=True)
    assert some[1] is None
    return some[0], *grad((z**2).sum(), (z, w), materialize_grads=True)


def many_weights(x):
    z = x.clone().requires_grad_()
    y = (z**3).sum(0)
    mapped = torch.vmap(lambda v: grad(y, z, v, retain_graph=True)[0])(torch.eye(3))
    return grad(y, z, torch.eye(3), is_grads_batched=True)[0], mapped


def frozen_for_a_while(x):
    w = torch.ones(3, requires_grad=True)
    v = nn.Parameter(torch.full((3,), 0.5), requires_grad=False)
    (x * w * v).sum().backward()
    assert v.grad is None
    v.requires_grad_(True)
    (x * w * v).sum().backward()
    return w.grad, v.grad


def with_an_optimizer(x):
    w = nn.Parameter(torch.zeros(3))
    v = torch.zeros(3, requires_grad=True)
    ways = torch.optim.Adam([w], lr=0.1), torch.optim.SGD([v], lr=0.1, momentum=0.9)
    for _ in range(3):
        for way, p in zip(ways, (w, v)):
            way.zero_grad()
            ((x @ p - 1) ** 2).mean().backward()
            way.step()
    return w, v


def beside_func(x):
    cubes = lambda a: (a**3).sum()
    z = leaf(x)
    return grad((torch.func.grad(cubes)(z) * z).sum(), z, create_graph=True)[0]


def on_a_condition(x):
    z = x.clone().requires_grad_()
    y = (z**2).sum()
    if y > 3:
        y = y * z.sum()
    return grad(y, z)[0]


# What torch's own double backward covers is differentiated once more.
AGAIN = [total_derivative, three_times, a_step_against_it, through_writes, beside_func]
ONCE = [of_complex, inside_no_grad, into_grad, retained, unused, many_weights, frozen_for_a_while]
ONCE += [with_an_optimizer, on_a_condition]


@pytest.mark.parametrize("function", AGAIN + ONCE)
def test_as_torch(function):
    want = jax.tree.leaves(function(X))
    got = jax.jit(anyjax.from_torch(function).apply)({}, X.numpy())
    for x, y in zip(jax.tree.leaves(got), want, strict=True):
        assert_close(x, y.detach(), reduction=300)


@pytest.mark.parametrize("function", AGAIN)
def test_and_once_more(function):
    x = X.clone().requires_grad_()
    total = lambda out: sum((y**2).sum() for y in jax.tree.leaves(out))
    total(function(x)).backward()
    model = anyjax.from_torch(function)
    got = jax.jit(jax.grad(lambda x: total(model.apply({}, x))))(X.numpy())
    assert_close(got, x.grad, reduction=300)


@pytest.mark.parametrize("name", ["jacobian", "hessian", "vjp", "jvp", "hvp", "vhp"])
def test_functional(name):
    rows = lambda x: (x.exp() * x.flip(0)).sum(-1)
    function = rows if name in ("jacobian", "vjp", "jvp") else lambda x: rows(x).sum()
    weights = {"jacobian": (), "hessian": (), "vjp": (torch.ones(2),)}
    weights = weights.get(name, (torch.ones(2, 3),))
    taken = lambda x: getattr(functional, name)(function, x, *weights)
    got, want = jax.jit(anyjax.from_torch(taken).apply)({}, X[:2].numpy()), taken(X[:2])
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert_close(x, y, reduction=30)


def test_jacobian_of_all_rows_at_once():
    taken = lambda x: functional.jacobian(lambda x: x.exp().sum(-1), x, vectorize=True)
    assert_close(anyjax.from_torch(taken)(X.numpy()), taken(X), reduction=3)


class ForceField(nn.Module):
    """Energies and their slopes, as of atoms."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        x = x.clone().requires_grad_(True)
        energy = self.net(x).sum()
        return energy, -torch.autograd.grad(energy, x, create_graph=True)[0]


class Learner(nn.Module):
    """Learns for three steps, and is judged by what it has learnt (MAML)."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x):
        y = x.sum(1, keepdim=True)
        params = dict(self.net.named_parameters())
        call = lambda: F.mse_loss(torch.func.functional_call(self.net, params, (x,)), y)
        for _ in range(3):
            slopes = torch.autograd.grad(call(), list(params.values()), create_graph=True)
            params = {k: p - 0.1 * g for (k, p), g in zip(params.items(), slopes)}
        return call(), *params.values()


@pytest.mark.parametrize("kind", [ForceField, Learner])
def test_modules_and_the_gradients_of_their_weights(kind):
    torch.manual_seed(0)
    module = kind()
    total = lambda out: sum((y**2).sum() for y in out)
    loss = total(module(X))
    loss.backward()
    model = anyjax.from_torch(module)
    got, slopes = jax.jit(jax.value_and_grad(lambda p, x: total(model.apply(p, x))))(
        model.params, X.numpy()
    )
    assert_close(got, loss.detach(), reduction=100)
    for name, p in module.named_parameters():
        want = jnp.zeros(p.shape) if p.grad is None else p.grad
        assert_close(slopes[name], want, reduction=1000, scale=1.0)  # some cancel
    assert_close(model(X.numpy())[0], module(X)[0].detach(), reduction=100)


def test_errors_are_torchs_own():
    def detached(x):
        z = leaf(x)
        return torch.autograd.grad((z.detach() ** 2).sum(), z)

    def aside(x):
        z = leaf(x)
        return torch.autograd.grad((z**2).sum(), torch.ones(2, requires_grad=True))

    for function in detached, aside:
        with pytest.raises(RuntimeError) as theirs:
            function(X)
        with pytest.raises(RuntimeError) as ours:
            anyjax.from_torch(function)(X.numpy())
        last = [str(x.value).splitlines()[0].partition(" appears ")[2] for x in (ours, theirs)]
        assert last[0] == last[1]
