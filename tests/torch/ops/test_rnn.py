"""Recurrent layers against torch's: outputs, last states and gradients."""

import jax
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

import anyjax
from anyjax.errors import DataDependent
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

X = np.random.default_rng(0).standard_normal((3, 6, 4)).astype(np.float32)
LENGTHS = [2, 6, 4]

LAYERS = {
    "LSTM": nn.LSTM(4, 5),
    "LSTM, bidirectional": nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True),
    "LSTM, projection": nn.LSTM(4, 5, num_layers=2, bidirectional=True, proj_size=3),
    "LSTM, no bias": nn.LSTM(4, 5, num_layers=2, bias=False),
    "GRU": nn.GRU(4, 5, num_layers=2, bidirectional=True),
    "GRU, no bias": nn.GRU(4, 5, bias=False, batch_first=True),
    "RNN": nn.RNN(4, 5, num_layers=2),
    "RNN, relu": nn.RNN(4, 5, bidirectional=True, nonlinearity="relu"),
}
CELLS = {
    "LSTMCell": nn.LSTMCell(4, 5),
    "GRUCell": nn.GRUCell(4, 5),
    "RNNCell": nn.RNNCell(4, 5, nonlinearity="relu"),
}


class Packed(nn.Module):
    """Sequences of known lengths through a packed layer."""

    def __init__(self, kind):
        super().__init__()
        self.layer = kind(4, 5, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x):
        packed = rnn.pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
        out, last = self.layer(packed)
        return rnn.pad_packed_sequence(out, batch_first=True, total_length=7)[0], last


def assert_same(module, x):
    """Outputs and the gradient of the sum of their squares agree."""
    outs = jax.tree.leaves(module(torch.from_numpy(x)))
    grads = torch.autograd.grad(sum((o**2).sum() for o in outs), list(module.parameters()))
    model = anyjax.from_torch(module)

    def loss(params):
        got = jax.tree.leaves(model.apply(params, x))
        return sum((o**2).sum() for o in got), got

    got_grads, got = jax.jit(jax.grad(loss, has_aux=True))(model.params)
    assert_close(got, outs, reduction=100)
    assert_close(
        got_grads, dict(zip(dict(module.named_parameters()), grads, strict=True)), reduction=400
    )


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    assert_same(LAYERS[name], X)


@pytest.mark.parametrize("name", CELLS)
def test_cells(name):
    assert_same(CELLS[name], X[0])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN], ids=lambda kind: kind.__name__)
def test_packed_sequences(kind):
    assert_same(Packed(kind), X)


def test_dropout_between_layers_follows_the_key():
    model = anyjax.from_torch(nn.LSTM(4, 5, num_layers=2, dropout=0.5)).train()
    first, again, other = (
        model.apply(model.params, X, rng=jax.random.key(i))[0] for i in (0, 0, 1)
    )
    assert_close(first, again)
    assert not np.allclose(first, other)


def test_traced_lengths_are_named():
    def pack(x, lengths):
        return rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False).data

    model = anyjax.from_torch(pack)
    with pytest.raises(DataDependent, match="lengths"):
        jax.jit(lambda x, n: model.apply({}, x, n))(X, np.array(LENGTHS))
    assert model.apply({}, X, np.array(LENGTHS)).shape == (12, 4)
