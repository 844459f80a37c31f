"""Classes that a file brings along."""

import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torch import nn

from tests.flax.codegen.models import CNN, drawn
from tests.flax.codegen.running import assert_same_gradients, assert_same_values, prepared
from tests.tolerance import assert_close


def test_running_statistics_are_torchs():
    torch.manual_seed(0)
    module, inputs = CNN().eval(), (drawn(4, 3, 16, 16),)
    _, model = prepared(module, inputs)
    module.train(), model.train()
    for _ in range(2):
        module(*inputs), model(jnp.asarray(inputs[0].numpy()))
    for mine, other in ((model.bn1.mean, "running_mean"), (model.bn1.var, "running_var")):
        assert_close(mine[...], getattr(module.bn1, other).numpy(), reduction=1024)
    module.eval(), model.eval()
    assert_same_values(module, model, inputs)


class Parts(nn.Module):
    """A list of one value, and one that stands for a whole number elsewhere."""

    def __init__(self):
        super().__init__()
        self.place, self.shift = 0, nn.ZeroPad2d((0, 0, 1, -1))

    def forward(self, x):
        (one,) = x[:, :1].unbind(1)
        return one + 1, self.shift(x)[:, self.place :].tile(2, 1, 1)


def test_lists_of_one_value_and_shifts():
    module, inputs = Parts().eval(), (drawn(3, 2, 4),)
    text, model = prepared(module, inputs)
    assert "jax.lax.pad(x, 0.0," in text
    assert_same_values(module, model, inputs)


class Padded(nn.Module):
    """An embedding whose weights the head has, too, and one that is looked up by a function."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8, padding_idx=3)
        self.table = nn.Parameter(torch.randn(12, 8))
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens) + F.embedding(tokens, self.table, padding_idx=1))


def test_looking_padding_up_has_no_gradient():
    torch.manual_seed(0)
    module, inputs = Padded().eval(), (torch.arange(12).reshape(2, 6),)
    text, model = prepared(module, inputs)
    assert "PaddedEmbed(12, 8, padding_idx=3" in text
    assert_same_values(module, model, inputs)
    assert_same_gradients(module, model, inputs)
