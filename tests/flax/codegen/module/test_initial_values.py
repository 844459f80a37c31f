"""What parameters hold before weights are loaded."""

import jax.numpy as jnp
import torch
from flax import nnx
from torch import nn

import anyjax
from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import loaded


class Bare(nn.Module):
    """Parameters that training has changed since their author made them."""

    def __init__(self, width=64):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))
        self.weight = nn.Parameter(torch.empty(width, width))
        self.reset()

    def reset(self):
        nn.init.normal_(self.weight, std=0.5)

    def forward(self, x):
        return (x * self.gain + self.shift) @ self.weight


def test_parameters_are_initialised_as_their_author_does():
    module = Bare()
    with torch.no_grad():
        module.gain.normal_()
        module.shift.normal_()
    file = loaded(anyjax.flax.source(module, drawn(3, 64)))
    model = file.Bare(rngs=nnx.Rngs(0))
    assert (model.gain[...] == 1).all() and (model.shift[...] == 0).all()
    assert abs(jnp.std(model.weight[...]) - 0.5) < 0.03
