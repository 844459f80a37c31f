"""Inputs of floats require a gradient: hooks and torch.autograd.grad act on what JAX takes."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close
from tests.torch.beside_torch import assert_same_gradients

pytestmark = pytest.mark.sample(every=4)

X = np.array([0.5, -1, 2], np.float32)


def guarded(x):
    """A hook where there is a gradient."""
    y = x * 1
    if y.requires_grad:
        y.register_hook(lambda g: 3 * g)
    return y.sin()


def on_the_input(x):
    x.register_hook(lambda g: g.clamp(max=0.5))
    return x**2


def penalty(x):
    """A gradient by the input, of which there is a gradient again."""
    (by,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return by * x


def asked_for(x):
    """It requires a gradient already."""
    y = x.requires_grad_() * 2
    y.backward(torch.ones(3), inputs=[x])
    return y * x.grad


def written_to(x):
    """In-place calls on an input, which torch refuses only of a leaf."""
    y = x.clone()
    y[0] = 5.0
    return y.mul_(2) * x


def not_followed(x):
    with torch.no_grad():
        y = x * 2
    return y * x + x.detach()


CASES = [guarded, on_the_input, penalty, written_to, not_followed]


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_gradients_are_those_of_torch(function):
    assert_same_gradients(function, X)


def test_what_an_input_says_of_itself():
    seen = []

    def function(x, n):
        seen.append((x.requires_grad, x.is_leaf, (x * 1).is_leaf, n.requires_grad))
        return x * n

    anyjax.from_torch(function)(X, np.arange(3))
    assert seen[0] == (True, True, False, False)
    assert_close(anyjax.from_torch(asked_for)(X), 4 * X)


class Twice(torch.nn.Module):
    def forward(self, x):
        return x * 2


def test_a_hook_of_a_module_without_parameters():
    """Gradient reversal."""
    module = torch.nn.Sequential(Twice())
    module[0].register_full_backward_hook(lambda module, inward, outward: (-inward[0],))
    model = anyjax.from_torch(module)
    by = jax.jit(jax.grad(lambda x: model.apply({}, x).sum()))(X)
    assert_close(by, np.full(3, -2, np.float32))


def test_guided_backpropagation():
    """Hooks on every ReLU, of the gradient with respect to the picture."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 1, 3))
    net[1].register_full_backward_hook(lambda module, inward, outward: (inward[0].clamp(min=0),))
    picture = torch.randn(1, 1, 8, 8, requires_grad=True)
    net(picture).sum().backward()
    model = anyjax.from_torch(net)
    loss = lambda x: model.apply(model.params, x).sum()
    got = jax.jit(jax.grad(loss))(picture.detach().numpy())
    assert_close(got, picture.grad.numpy(), reduction=64)


def test_grad_cam():
    """Activations and their gradient, from inside of forward."""
    torch.manual_seed(0)
    features, head = torch.nn.Conv2d(1, 4, 3), torch.nn.Linear(4, 2)

    class Cam(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.head = features, head

        def forward(self, x):
            seen = self.features(x)
            score = self.head(seen.relu().mean((2, 3)))[:, 1].sum()
            (by,) = torch.autograd.grad(score, seen)
            return (by.mean((2, 3), keepdim=True) * seen).sum(1).relu()

    x = torch.randn(2, 1, 6, 6)
    module = Cam()
    got = anyjax.from_torch(module)(x.numpy())
    assert_close(got, module(x).detach().numpy(), reduction=64)
