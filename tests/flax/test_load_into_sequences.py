"""Attention, recurrent cells, a Llama written by hand."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from anyjax.errors import WrongWeights
from anyjax.flax import load_into
from tests.flax.torch_side import assert_same_outputs, empty, lively, normal, run
from tests.tolerance import assert_close


class Encoder(nnx.Module):
    """An encoder layer with norms after the sums, as torch's has by default."""

    def __init__(self, rngs, width=8, heads=2):
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.up = nnx.Linear(width, 16, rngs=rngs)
        self.down = nnx.Linear(16, width, rngs=rngs)
        norm = lambda: nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.after_attention, self.after_mlp = norm(), norm()

    def __call__(self, x):
        x = self.after_attention(x + self.attention(x))
        return self.after_mlp(x + self.down(nnx.relu(self.up(x))))


def test_encoder_with_packed_attention():
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    theirs, ours, x = lively(theirs), empty(Encoder), normal(2, 5, 8)
    _, report = load_into(ours, theirs, example=(x,))
    assert_same_outputs(run(ours, x), theirs, x)
    assert report["attention/key/kernel"].torch == "self_attn.in_proj_weight[8:16]"
    assert report["attention/out/kernel"].layout == "transposed, reshaped"
    assert report["after_mlp/scale"].torch == "norm2.weight"
    assert report["after_mlp/scale"].how == "agreement"


def test_encoder_decides_by_itself_on_random_inputs():
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    theirs, ours, x = lively(theirs), empty(Encoder), normal(2, 5, 8)
    _, report = load_into(ours, theirs)
    assert_same_outputs(run(ours, x), theirs, x)
    assert report["after_mlp/scale"].how == "agreement"


def test_multi_head_attention_of_linen_from_projections_and_from_packed_ones():
    theirs, x = lively(torch.nn.MultiheadAttention(8, 2, batch_first=True)), normal(2, 5, 8)
    module = nn.MultiHeadDotProductAttention(2)
    variables, _ = load_into(module, theirs, example=(x,), torch_example=(x, x, x))
    with torch.no_grad():
        want = theirs(*[torch.from_numpy(x)] * 3)[0].numpy()
    assert_close(np.asarray(module.apply(variables, x)), want, reduction=64)
    packed = theirs.state_dict()
    weights, biases = packed["in_proj_weight"].chunk(3), packed["in_proj_bias"].chunk(3)
    apart = {f"{n}_proj.weight": w for n, w in zip("qkv", weights)}
    apart |= {f"{n}_proj.bias": b for n, b in zip("qkv", biases)}
    apart |= {f"o_proj.{x}": packed[f"out_proj.{x}"] for x in ("weight", "bias")}
    again, _ = load_into(module, apart, variables=variables)
    jax.tree.map(np.testing.assert_array_equal, again, variables)


class Fused(nnx.Module):
    def __init__(self, rngs):
        self.qkv = nnx.Linear(8, 24, rngs=rngs)
        self.out = nnx.Linear(8, 8, rngs=rngs)

    def __call__(self, x):
        heads = [h.reshape(2, 5, 2, 4) for h in jnp.split(self.qkv(x), 3, -1)]
        return self.out(jax.nn.dot_product_attention(*heads).reshape(2, 5, 8))


@pytest.mark.parametrize("apart", [False, True])
def test_fused_projection(apart):
    theirs, x = lively(torch.nn.MultiheadAttention(8, 2, batch_first=True)), normal(2, 5, 8)
    weights = theirs.state_dict()
    if apart:
        for leaf in ("weight", "bias"):
            parts = weights.pop(f"in_proj_{leaf}").chunk(3)
            weights |= {f"{n}_proj.{leaf}": p for n, p in zip("qkv", parts)}
    ours = empty(Fused)
    load_into(ours, weights)
    with torch.no_grad():
        want = theirs(*[torch.from_numpy(x)] * 3)[0].numpy()
    assert_close(np.asarray(run(ours, x)), want, reduction=64)


CELLS = [nnx.LSTMCell, nnx.OptimizedLSTMCell, nn.LSTMCell, nn.OptimizedLSTMCell]
CELLS += [nn.GRUCell, nnx.GRUCell, nn.SimpleCell, nnx.SimpleCell]


@pytest.mark.parametrize("cell", CELLS, ids=lambda c: f"{c.__module__.split('.')[1]}-{c.__name__}")
def test_recurrent(cell):
    kind = {"L": "LSTM", "O": "LSTM", "G": "GRU", "S": "RNN"}[cell.__name__[0]]
    theirs, x = lively(getattr(torch.nn, kind)(3, 4, batch_first=True)), normal(2, 6, 3)
    if cell is nnx.GRUCell:  # it has no bias there
        theirs.bias_hh_l0.data[8:] = 0
    if issubclass(cell, nnx.Module):
        ours = nnx.RNN(cell(3, 4, rngs=nnx.Rngs(0)))
        load_into(ours, theirs, example=(x,))
        assert_same_outputs(run(ours, x), theirs, x)
    else:
        module = nn.RNN(cell(4))
        variables, _ = load_into(module, theirs, example=(x,))
        assert_same_outputs(jax.jit(module.apply)(variables, x), theirs, x)


def test_a_bias_that_a_cell_cannot_hold_is_an_error():
    theirs = lively(torch.nn.GRU(3, 4, batch_first=True))
    with pytest.raises(WrongWeights, match=r"bias_hh_l0\[8:\]"):
        load_into(nnx.RNN(nnx.GRUCell(3, 4, rngs=nnx.Rngs(0))), theirs)


class TwoWays(nnx.Module):
    def __init__(self, rngs):
        cell = lambda n: nnx.RNN(nnx.OptimizedLSTMCell(n, 4, rngs=rngs))
        self.lower = nnx.Bidirectional(cell(3), cell(3))
        self.upper = nnx.Bidirectional(cell(8), cell(8))

    def __call__(self, x):
        return self.upper(self.lower(x))


def test_two_layers_in_both_directions():
    theirs = lively(torch.nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True))
    ours, x = TwoWays(nnx.Rngs(0)), normal(2, 6, 3)
    _, report = load_into(ours, theirs, example=(x,))
    assert_same_outputs(run(ours, x), theirs, x)
    name = "upper/backward_rnn/cell/dense_i/kernel"
    assert report[name].torch == "weight_ih_l1_reverse"


class HandLlamaLayer(nnx.Module):
    def __init__(self, rngs, width, heads, groups, hidden):
        size = width // heads
        general = lambda n: nnx.LinearGeneral(width, (n, size), use_bias=False, rngs=rngs)
        self.ln_attn = nnx.RMSNorm(width, epsilon=1e-6, rngs=rngs)
        self.ln_mlp = nnx.RMSNorm(width, epsilon=1e-6, rngs=rngs)
        self.wq, self.wk, self.wv = general(heads), general(groups), general(groups)
        self.wo = nnx.LinearGeneral((heads, size), width, axis=(-2, -1), use_bias=False, rngs=rngs)
        dense = lambda a, b: nnx.Linear(a, b, use_bias=False, rngs=rngs)
        self.w1, self.w3 = dense(width, hidden), dense(width, hidden)
        self.w2 = dense(hidden, width)

    def __call__(self, x, table):
        h = self.ln_attn(x)
        q, k = rotated(self.wq(h), table), rotated(self.wk(h), table)
        x = x + self.wo(jax.nn.dot_product_attention(q, k, self.wv(h), is_causal=True))
        h = self.ln_mlp(x)
        return x + self.w2(nnx.silu(self.w1(h)) * self.w3(h))


def rotated(x, table):
    cos, sin = table
    a, b = jnp.split(x, 2, -1)
    return x * cos[:, None] + jnp.concatenate([-b, a], -1) * sin[:, None]


class HandLlama(nnx.Module):
    def __init__(self, rngs):
        self.tok = nnx.Embed(32, 16, rngs=rngs)
        self.trunk = nnx.List([HandLlamaLayer(rngs, 16, 4, 2, 24) for _ in range(3)])
        self.last_norm = nnx.RMSNorm(16, epsilon=1e-6, rngs=rngs)
        self.unembed = nnx.Linear(16, 32, use_bias=False, rngs=rngs)

    def __call__(self, ids):
        angles = jnp.arange(ids.shape[1])[:, None] * 10000.0 ** (-jnp.arange(0, 4, 2) / 4)
        angles = jnp.concatenate([angles, angles], -1)
        x = self.tok(ids)
        for layer in self.trunk:
            x = layer(x, (jnp.cos(angles), jnp.sin(angles)))
        return self.unembed(self.last_norm(x))


@pytest.fixture(scope="module")
def llama():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6,
        tie_word_embeddings=False, use_cache=False,
    )  # fmt: skip
    return lively(transformers.LlamaForCausalLM(config))


def test_llama_by_hand(llama):
    ours, ids = empty(HandLlama), np.arange(12).reshape(2, 6)
    _, report = load_into(ours, llama, example=(ids,))
    with torch.no_grad():
        want = llama(torch.from_numpy(ids)).logits.numpy()
    assert_close(np.asarray(run(ours, ids)), want, reduction=1024)
    assert report["trunk/2/w1/kernel"].torch == "model.layers.2.mlp.gate_proj.weight"
    assert report["trunk/2/w1/kernel"].how == "agreement"
    assert report["trunk/1/wq/kernel"].how == "name"
    assert report["tok/embedding"].how == "shape"


def test_llama_from_files(llama, tmp_path):
    llama.save_pretrained(tmp_path)
    by_hand, ids = empty(HandLlama), np.arange(12).reshape(2, 6)
    with pytest.raises(WrongWeights, match=r"(?s)trunk/0/w1: .*gate_proj \| .*up_proj"):
        load_into(by_hand, tmp_path)
    names = {"w1": "gate_proj", "w3": "up_proj"}
    match = {f"trunk/*/{k}": f"model.layers.*.mlp.{v}" for k, v in names.items()}
    load_into(by_hand, tmp_path, match=match)
    with torch.no_grad():
        want = llama(torch.from_numpy(ids)).logits.numpy()
    assert_close(np.asarray(run(by_hand, ids)), want, reduction=1024)
    again, _ = load_into(empty(HandLlama), tmp_path / "model.safetensors", match=match)
    jax.tree.map(np.testing.assert_array_equal, nnx.state(again), nnx.state(by_hand))
