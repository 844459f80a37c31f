"""What an adapted source gives on: names, modes, equality."""

import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.train import lora
from anyjax.train.adapters.adapted import Adapter

pytestmark = pytest.mark.sample(every=2)

X = np.ones((2, 4), np.float32)


def test_names_of_parts():
    adapter = Adapter("layers.0.weight", 1.0)
    assert adapter.param_name("lora_A") == "layers.0.lora_A"


def test_is_a_source_like_its_base():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    model = anyjax.from_torch(net)
    small = lora(model, 2, "0.weight")
    assert small.source.name == model.source.name and small.source.module is net
    assert small.source == lora(model, 2, "0.weight").source
    assert small.source != lora(model, 2, "0.weight", alpha=8).source
    drawn = small.train()(X, rng=jax.random.key(0))
    assert (np.asarray(drawn) == 0).any() and (np.asarray(small.eval()(X)) != 0).all()
    with pytest.raises(AttributeError):
        small.source.nothing


def test_computes_in_the_dtype_of_the_weights():
    model = anyjax.from_torch(nn.Linear(4, 4).to(torch.bfloat16))
    small = lora(model, 2, "weight")
    assert small.params["weight.lora_A"].dtype == np.float32
    assert small.source.opened(small.params, small.state)[0]["weight"].dtype == "bfloat16"


ROWS = {
    "zeros": np.zeros(4, np.float32),
    "squares below the floats": np.full(4, 1e-30, np.float32),
    "squares above the floats": np.full(4, 1e25, np.float32),
}


@pytest.mark.parametrize("moved", [False, True], ids=["new", "moved"])
@pytest.mark.parametrize("kind", ["linear", "embedding"])
@pytest.mark.parametrize("row", ROWS)
def test_lengths_of_any_row(row, kind, moved):
    """A row, or a column where lengths go along these, keeps its value; gradients are finite."""
    net = nn.Linear(4, 4, bias=False) if kind == "linear" else nn.Embedding(4, 4, padding_idx=1)
    net = nn.Sequential(net)
    with torch.no_grad():
        at = (1,) if kind == "linear" else (slice(None), 1)
        net[0].weight[at] = torch.from_numpy(ROWS[row])
    model = anyjax.from_torch(net)
    small = lora(model, 2, "weight", dora=True)
    params = dict(small.params)
    if moved:  # what a file may hold: a length where there is no direction
        params |= {"0.lora_magnitude_vector": params["0.lora_magnitude_vector"] + 1}
    matrix = lambda p: small.source.opened(p, small.state)[0]["0.weight"]
    want = np.asarray(model.params["0.weight"])
    if not moved:
        np.testing.assert_allclose(matrix(params), want, rtol=1e-5)
    elif row == "zeros":
        np.testing.assert_array_equal(np.asarray(matrix(params))[at], 0)
    slopes = jax.grad(lambda p: matrix(p)[at].sum())(params)
    for name, slope in slopes.items():
        assert np.isfinite(slope).all(), name
