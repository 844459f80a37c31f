"""What an adapted source gives on: names, modes, equality."""

import jax
import numpy as np
import pytest
import torch
from torch import nn

import tojax
from tojax.train import lora
from tojax.train.adapted import Adapter

X = np.ones((2, 4), np.float32)


def test_names_of_parts():
    adapter = Adapter("layers.0.weight", 1.0)
    assert adapter.part("lora_A") == "layers.0.lora_A"


def test_is_a_source_like_its_base():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    model = tojax.from_torch(net)
    small = lora(model, 2, "0.weight")
    assert small.source.name == model.source.name and small.source.module is net
    assert small.source == lora(model, 2, "0.weight").source
    assert small.source != lora(model, 2, "0.weight", alpha=8).source
    drawn = small.train()(X, rng=jax.random.key(0))
    assert (np.asarray(drawn) == 0).any() and (np.asarray(small.eval()(X)) != 0).all()
    with pytest.raises(AttributeError):
        small.source.nothing


def test_computes_in_the_dtype_of_the_weights():
    model = tojax.from_torch(nn.Linear(4, 4).to(torch.bfloat16))
    small = lora(model, 2, "weight")
    assert small.params["weight.lora_A"].dtype == np.float32
    assert small.source.opened(small.params, small.state)[0]["weight"].dtype == "bfloat16"
