"""Which layer a matrix belongs to, and who else has it."""

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

import anyjax
from anyjax.train.adapters.layout import is_turned, layer_of, places_sharing

pytestmark = pytest.mark.sample(every=2)


class Scaled(nn.Embedding):
    """As some models have."""


LAYERS = [
    (nn.Linear(2, 2), "Linear", False),
    (nn.Embedding(2, 2), "Embedding", True),
    (Scaled(2, 2), "Embedding", True),
    (Conv1D(2, 2), "Conv1D", True),
    (nn.Conv1d(2, 2, 1), None, False),
    (nn.LSTM(2, 2), None, False),
]


@pytest.mark.parametrize("layer, kind, turned", LAYERS)
def test_layers(layer, kind, turned):
    source = anyjax.from_torch(nn.Sequential(layer)).source
    assert layer_of(source, "0") == kind and is_turned(source, "0") == turned


def test_places_that_are_none():
    assert layer_of(anyjax.from_torch(nn.Sequential()).source, "weight") is None
    assert layer_of(anyjax.from_torch(torch.sin).source, "0") is None


def test_layers_with_the_same_weight():
    net = nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 3), nn.Linear(2, 3))
    net[1].weight = net[0].weight
    source = anyjax.from_torch(net).source
    assert [places_sharing(source, place) for place in "012"] == [["1"], ["0"], []]
