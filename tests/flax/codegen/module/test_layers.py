"""Activations that a module spells out are Flax's where they are."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import anyjax
from anyjax.errors import WrongSource
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


class Triangle(nn.Module):
    def forward(self, w):
        return w.triu()


def symmetric(layer):
    parametrize.register_parametrization(layer, "weight", Triangle())
    return layer


@pytest.mark.filterwarnings("ignore")  # torch's, of weight_norm's older form
@pytest.mark.parametrize(
    "computed",
    [
        nn.utils.weight_norm,
        lambda x: nn.utils.weight_norm(x, dim=None),
        parametrizations.weight_norm,
        lambda x: prune.random_unstructured(x, "weight", amount=2),
        symmetric,
    ],
)
@pytest.mark.parametrize("layer", [lambda: nn.Linear(4, 4), lambda: nn.Conv1d(4, 3, 1)])
@pytest.mark.parametrize("style", ["nnx", "linen"])
def test_weights_that_a_layer_is_given(computed, layer, style):
    module = nn.Sequential(computed(layer()), nn.Tanh()).eval()
    x = drawn(2, 4) if isinstance(module[0], nn.Linear) else drawn(2, 4, 5)
    if style == "nnx":
        assert_same_values(module, prepared(module, [x])[1], [x])
    else:
        assert "load_params" in anyjax.flax.source(module, x, style=style)  # it checks itself


@pytest.mark.filterwarnings("ignore")  # torch's, of spectral_norm's older form
def test_weights_that_training_mode_computes_otherwise():
    module, x = nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 4))).eval(), drawn(2, 4)
    with pytest.raises(WrongSource, match="has no training mode"):
        anyjax.flax.source(module, x)
    assert_same_values(module, prepared(module, [x], check=False)[1], [x])
