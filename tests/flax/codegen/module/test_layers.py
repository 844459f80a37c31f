"""Activations that a module spells out are Flax's where they are."""

import math

import torch
from torch import nn

from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import assert_same_values, prepared


class Gelu(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        inner = math.sqrt(2 / math.pi) * (x + self.factor * x**3)
        return 0.5 * x * (1 + torch.tanh(inner))


class Net(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.one, self.act = nn.Linear(6, 6), Gelu(factor)
        self.net = nn.Sequential(nn.Linear(6, 5), Gelu(factor), nn.Linear(5, 2))

    def forward(self, x):
        return self.net(self.act(self.one(x)))


def test_gelu_by_its_formula():
    text, _ = prepared(Net(0.044715), (drawn(3, 6),))
    assert "self.net(nnx.gelu(self.one(x)))" in text and ", nnx.gelu, " in text


def test_what_is_only_like_it_is_written_as_it_is():
    module = Net(0.0447)
    text, model = prepared(module, (drawn(3, 6),))
    assert "gelu" not in text and text.count("jnp.tanh") == 2
    assert_same_values(module, model, (drawn(3, 6),))
