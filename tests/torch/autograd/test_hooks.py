"""Hooks change the gradients that jax.grad gives, as they change torch's."""

import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import Unsupported
from tests.tolerance import assert_close

X = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32))


def assert_same_gradients(module):
    """Of a module that gives a number."""
    out = module(X)
    out.backward()
    model = anyjax.from_torch(module)
    for take in (jax.value_and_grad(model.apply), jax.jit(jax.value_and_grad(model.apply))):
        got, slopes = take(model.params, X.numpy())
        assert_close(got, out.detach(), reduction=30)
        for name, p in module.named_parameters():
            assert_close(slopes[name], p.grad, reduction=100)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
        self.clip = False

    def forward(self, x):
        h = self.a(x).tanh()
        if self.clip:
            h.register_hook(lambda g: g.clamp(-0.1, 0.1))
            h.register_hook(lambda g: None).remove()
        return self.c(self.b(h).tanh()).sum()


def test_of_parameters():
    module = Layers()
    module.a.weight.register_hook(lambda g: g * torch.tensor([1.0, 0.0, 1.0]))
    assert_same_gradients(module)


def test_of_tensors():
    module = Layers()
    module.clip = True
    assert_same_gradients(module)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # torch, of module.a
def test_of_modules():
    module = Layers()
    module.b.register_full_backward_hook(lambda module, grads, outs: (-2 * grads[0],))
    module.b.register_full_backward_hook(lambda module, grads, outs: (grads[0] + outs[0],))
    module.c.register_full_backward_pre_hook(lambda module, outs: (3 * outs[0],))
    module.a.register_full_backward_pre_hook(lambda module, outs: (outs[0] / 2,))
    assert_same_gradients(module)


def test_of_several_arguments_and_results():
    class Two(nn.Module):
        def forward(self, x, y, scale):
            return x * y * scale, y + 1

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.two = nn.Linear(3, 3), Two()

        def forward(self, x):
            one, other = self.two(x, self.layer(x), 2.0)
            return (one * other).sum()

    module = Whole()
    seen = []

    def hook(module, grads, outs):
        seen.append([g is not None for g in (*grads, *outs)])
        return grads[0], grads[1] * outs[0], None

    module.two.register_full_backward_hook(hook)
    assert_same_gradients(module)
    assert all(x == [True, True, False, True, True] for x in seen) and len(seen) > 1


def test_after_a_use():
    def function(x):
        w = torch.ones(3, requires_grad=True)
        y = x * w
        z = y * 2
        y.register_hook(lambda g: g * 0)
        return z

    with pytest.raises(Unsupported, match="used already") as caught:
        anyjax.from_torch(function)(X.numpy())
    assert "test_hooks.py" in caught.value.where


def test_of_what_needs_no_gradient():
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        anyjax.from_torch(lambda x: x.detach().register_hook(lambda g: g))(X.numpy())


def test_of_a_value_from_inside_of_forward():
    class Masked(Layers):
        def forward(self, x):
            h = self.a(x).tanh()
            h.register_hook(lambda g: g * (h.detach() > 0))
            return self.c(h).sum()

    module = Masked()
    module.b = nn.Identity()
    assert_same_gradients(module)


def test_removal_of_a_hook():
    def removed(x):
        y = x * 2
        handle = y.register_hook(lambda g: g * 0)
        handle.remove()
        return y

    model = anyjax.from_torch(removed)
    assert_close(jax.grad(lambda x: model.apply({}, x).sum())(X.numpy()), np.full((5, 3), 2.0))

    def too_late(x):
        y = x * 2
        handle = y.register_hook(lambda g: g * 0)
        z = y + 1
        handle.remove()
        return z

    with pytest.raises(Unsupported, match="used already"):
        anyjax.from_torch(too_late)(X.numpy())


def tenfold(parameter):
    parameter.grad.mul_(10)


def step(parameter):
    parameter.sub_(parameter.grad)


def test_after_the_accumulation_of_a_gradient():
    module = Layers()
    module.a.weight.register_hook(lambda g: g + 1)
    module.a.weight.register_post_accumulate_grad_hook(tenfold)
    module.b.weight.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", p.grad * p))
    assert_same_gradients(module)


def test_a_step_during_the_backward_pass_is_refused():
    module = Layers()
    module.a.weight.register_post_accumulate_grad_hook(step)
    model = anyjax.from_torch(module)
    model(X.numpy())
    with pytest.raises(Unsupported, match="changes more than the gradient"):
        jax.grad(model.apply)(model.params, X.numpy())
