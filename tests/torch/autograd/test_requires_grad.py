"""Tensors of a trace say of themselves what torch's own would say."""

import copy

import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import Unsupported
from tests.tolerance import assert_close

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)

SAID: list = []


class Asking(nn.Module):
    """Writes down what its tensors say."""

    def __init__(self):
        super().__init__()
        self.layer, self.fixed = nn.Linear(3, 3), nn.Linear(3, 3).requires_grad_(False)

    def forward(self, x):
        y = self.layer(x)
        with torch.no_grad():
            unfollowed = self.layer(x)
        made = nn.Parameter(y)
        tensors = {
            "input": x, "weight": self.layer.weight, "view": self.layer.weight.T[0],
            "fixed": self.fixed.weight, "out": y, "unfollowed": unfollowed,
            "detached": y.detach(), "data": y.data, "mask": (y > 0).float(), "index": y.argmax(),
            "zeros": torch.zeros_like(y), "written": torch.zeros(2, 3).copy_(y), "made": made,
            "copied": copy.deepcopy(self.layer).weight, "given": self.fixed(x).requires_grad_(),
            "a new leaf": torch.ones(2, requires_grad=True),
        }  # fmt: skip
        kind = lambda t: (
            t.requires_grad,
            t.is_leaf,
            t.grad_fn is None,
            isinstance(t, nn.Parameter),
        )
        SAID[:] = [(k, *kind(t)) for k, t in tensors.items()]
        return sum((p**2).sum() for p in self.parameters() if p.requires_grad)


def test_what_they_say():
    module = Asking()
    want = module(torch.from_numpy(X).requires_grad_()).detach()
    said = [*SAID]
    model = anyjax.from_torch(module)
    assert_close(jax.jit(model.apply)(model.params, X), want, reduction=12)
    assert said == SAID


def test_gradients_stop():
    function = lambda x: (x.data * x.detach() * x.clone().detach_() * x).sum()
    model = anyjax.from_torch(function)
    assert_close(jax.grad(lambda x: model.apply({}, x))(X), X**3, reduction=3)


def test_flags_of_what_is_no_leaf():
    def function(x):
        return (torch.ones(3, requires_grad=True) * x).requires_grad_(False)

    with pytest.raises(RuntimeError, match="leaf variables"):
        anyjax.from_torch(function)(X)


def test_hooks_of_torchs_graph_are_refused():
    module = nn.Sequential(nn.Linear(3, 3))
    with pytest.warns() if False else pytest.raises(Unsupported, match="grad_fn"):
        module[0].register_backward_hook(lambda *args: None)
        anyjax.from_torch(module)(X)
