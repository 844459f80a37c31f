"""partial=True: what cannot be written stays in PyTorch."""

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import arrays, assert_same_values, loaded


class Odd(nn.Module):
    """Two arrays in, two out, an option, and an operator that no rule writes."""

    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)

    def forward(self, x, offset, twice=False):
        y = torch.special.i0e(self.proj(x)) + offset
        return y * 2 if twice else y, offset.sin()


class Net(nn.Module):
    def __init__(self, width=6, depth=2):
        super().__init__()
        self.enter = nn.Linear(4, width)
        self.odd = nn.ModuleList([Odd(width) for _ in range(depth)])
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        x = offset = torch.tanh(self.enter(x))
        for odd in self.odd:
            x, offset = odd(x, offset, twice=True)
        return self.out(x + offset)


def test_the_rest_is_written():
    torch.manual_seed(0)
    module = Net().eval()
    with pytest.raises(Unsupported, match=r"(?s)i0e.*partial=True"):
        anyjax.flax.source(module, drawn(2, 4))
    text = anyjax.flax.source(module, drawn(2, 4), partial=True)
    assert "nnx.Linear(4, width, rngs=rngs)" in text and "class Odd" not in text
    file = loaded(text)
    model = file.Net(rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="connect"):
        model(*arrays((drawn(2, 4),)))
    weights = {k: v.numpy() for k, v in module.state_dict().items()}
    file.connect(file.load_params(model, weights), module)
    assert_same_values(module, model, (drawn(2, 4),))
    assert_same_values(module, model, (drawn(5, 4),))
    grads = nnx.grad(lambda m, x: (m(x) ** 2).sum())(model, *arrays((drawn(2, 4),)))
    assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(grads))


class Top(nn.Module):
    def forward(self, x):
        return torch.special.i0e(x)


def test_nothing_is_left_of_a_module_that_is_refused_itself():
    with pytest.raises(Unsupported, match="i0e"):
        anyjax.flax.source(Top(), drawn(2, 4), partial=True)
    with pytest.raises(WrongArguments, match="nnx"):
        anyjax.flax.source(Net(), drawn(2, 4), partial=True, style="linen")
