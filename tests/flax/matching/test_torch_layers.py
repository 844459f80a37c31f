import numpy as np
import pytest
import torch

from anyjax.flax.matching.stored import read_weights
from anyjax.flax.matching.torch_layers import layers, with_fused_qkv


def kinds(source, fused=False):
    return {x.path: x.kind for x in layers(read_weights(source), fused)}


def test_kinds_of_modules_and_of_arrays():
    module = torch.nn.ModuleDict({
        "embed": torch.nn.Embedding(5, 4), "fc": torch.nn.Linear(4, 4), "ln": torch.nn.LayerNorm(4),
        "bn": torch.nn.BatchNorm1d(4), "conv": torch.nn.Conv1d(4, 4, 3),
        "up": torch.nn.ConvTranspose1d(4, 4, 3), "lstm": torch.nn.LSTM(4, 4),
    })  # fmt: skip
    want = {"embed": "embed", "fc": "linear", "ln": "norm", "bn": "batchnorm", "conv": "conv"}
    want |= {"up": "convt", "lstm.0": "lstm", "bn.num_batches_tracked": "raw"}
    assert kinds(module) == want
    assert kinds(module.state_dict()) == want | {"fc": "", "conv": "", "up": ""}


def test_both_directions_of_recurrent_layers():
    module = torch.nn.GRU(3, 4, 2, bidirectional=True)
    names = ["0.forward", "0.backward", "1.forward", "1.backward"]
    assert kinds(module) == dict.fromkeys(names, "gru")
    assert set(kinds(torch.nn.RNN(3, 4))) == {"0"}
    assert kinds(torch.nn.LSTMCell(3, 4)) == {"": "lstm"}


@pytest.mark.parametrize("widths", [{}, {"kdim": 6, "vdim": 6}])
def test_packed_attention(widths):
    module = torch.nn.MultiheadAttention(4, 2, **widths)
    found = {x.path: x for x in layers(read_weights(module), fused=False)}
    assert {f"{n}_proj" for n in "qkv"} <= found.keys()
    key = found["k_proj"].tensors["weight"]
    want = module.k_proj_weight if widths else module.in_proj_weight[4:8]
    np.testing.assert_array_equal(key.read(), want.detach().numpy())


def test_transformers_conv1d_among_arrays():
    weight, bias = np.arange(48, dtype=np.float32).reshape(4, 12), np.zeros(12, np.float32)
    state = {"h.0.attn.c_attn.weight": weight, "h.0.attn.c_attn.bias": bias}
    q, _, _ = layers(read_weights(state), fused=False)
    assert (q.path, q.kind) == ("h.0.attn.q_proj", "matrix")
    np.testing.assert_array_equal(q.tensors["weight"].read(), weight[:, :4])
    (whole,) = layers(read_weights(state), fused=True)
    assert whole.path == "h.0.attn.c_attn"


def test_apart_projections_are_joined():
    state = {f"a.{n}_proj.weight": np.full((2, 3), i, np.float32) for i, n in enumerate("qkv")}
    (whole,) = with_fused_qkv(layers(read_weights(state), fused=True))
    assert whole.tensors["weight"].read()[:, 0].tolist() == [0, 0, 1, 1, 2, 2]
