"""Calls that are served before torch takes them apart."""

import copy

import jax
import numpy as np
import torch

import anyjax
from tests.tolerance import assert_close
from tests.torch.beside_torch import assert_same_values

X = np.array([1, -2, 3, 0.5], np.float32)


def written(x):
    """The copy is no alias, and a second one of the same tensor is the first."""
    one, other = copy.deepcopy([x, x])
    assert one is other
    one[0] = 5
    return one, x


def test_deepcopy():
    assert_same_values(lambda x: copy.deepcopy(x) * 2, X)
    assert_same_values(lambda x: copy.deepcopy({"a": [x[1:], 3]})["a"][0] * 3, X)
    assert_same_values(written, X)


class Copies(torch.nn.Module):
    """A layer, and a copy of it that forward makes."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) + copy.deepcopy(self.layer)(x).tanh() + copy.deepcopy(self.layer.bias)


def test_deepcopy_of_weights():
    """They are leaves of their own: the gradient of the original does not come from them."""
    module = Copies()
    model = anyjax.from_torch(module)
    got = model(X)
    want = module(torch.from_numpy(X))
    assert_close(got, want.detach().numpy(), reduction=16)
    want.sum().backward()
    grads = jax.grad(lambda p: model.apply(p, X).sum())(model.params)
    wanted = {name: p.grad.numpy() for name, p in module.named_parameters()}
    assert_close(dict(grads), wanted, reduction=16)
