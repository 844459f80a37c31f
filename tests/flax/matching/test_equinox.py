"""Equinox modules both ways: their layers, a State, grouped and transposed convolutions, cells."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
import torch

from anyjax.errors import WrongArguments, WrongWeights
from anyjax.flax import load_into, to_torch
from tests.flax.torch_side import lively, normal, torch_mlp
from tests.tolerance import assert_close

KEY = jax.random.key(0)


def mlp(seed):
    return eqx.nn.MLP(3, 2, 8, 2, key=jax.random.key(seed))


def test_an_mlp_is_mapped_over_the_batch():
    theirs, x = torch_mlp(3, 8, 8, 2), normal(4, 3)
    ours, report = load_into(mlp(0), theirs, example=x)
    assert report["layers/2/weight"].torch == "4.weight"
    assert_close(jax.vmap(ours)(x), theirs(torch.from_numpy(x)).detach().numpy(), reduction=64)
    back, _ = to_torch(ours, torch_mlp(3, 8, 8, 2), example=x)
    for name, value in back.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[name])


class Net(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    up: eqx.nn.ConvTranspose2d
    rnn: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, key, mode):
        keys = jax.random.split(key, 4)
        self.conv = eqx.nn.Conv2d(3, 8, 3, padding=1, key=keys[0])
        self.norm = eqx.nn.BatchNorm(8, "batch", mode=mode)
        self.up = eqx.nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, groups=2, key=keys[1])
        self.rnn = eqx.nn.GRUCell(6, 5, key=keys[2])
        self.head = eqx.nn.Linear(5, 2, key=keys[3])

    def __call__(self, x, state):
        x, state = self.norm(self.conv(x), state)
        x = jax.nn.relu(self.up(jax.nn.relu(x))).reshape(6, -1).T
        h, _ = jax.lax.scan(lambda h, v: (self.rnn(v, h), None), jnp.zeros(5), x)
        return self.head(h), state


class TorchNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.up = torch.nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, groups=2)
        self.rnn = torch.nn.GRU(6, 5, batch_first=True)
        self.head = torch.nn.Linear(5, 2)

    def forward(self, x):
        x = torch.relu(self.up(torch.relu(self.norm(self.conv(x)))))
        return self.head(self.rnn(x.flatten(2).mT)[1][0])


@pytest.mark.parametrize("mode", ["ema", "batch"])
def test_a_state_holds_the_statistics(mode):
    theirs, x = lively(TorchNet()), normal(2, 3, 4, 4)
    module, state = eqx.nn.make_with_state(Net)(KEY, mode)
    (ours, filled), report = load_into(module, theirs, variables=state, example=x)
    assert report["norm/mean"].torch == "norm.running_mean"
    assert report["up/weight"].layout == "outputs before, flipped"
    run = jax.vmap(eqx.nn.inference_mode(ours), axis_name="batch", in_axes=(0, None))
    assert_close(run(x, filled)[0], theirs(torch.from_numpy(x)).detach().numpy(), reduction=256)
    back, _ = to_torch(ours, TorchNet(), variables=filled, example=x)
    for name, value in back.state_dict().items():
        if "bias_" not in name and "num_batches" not in name:
            assert torch.equal(value, theirs.state_dict()[name])
    sums = lambda net: net.rnn.bias_ih_l0[:10] + net.rnn.bias_hh_l0[:10]  # the cell has one of both
    assert torch.equal(sums(back), sums(theirs))
    assert torch.equal(back.rnn.bias_hh_l0[10:], theirs.rnn.bias_hh_l0[10:])


class Block(eqx.Module):
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    table: eqx.nn.Embedding

    def __init__(self, key):
        self.norm1, self.norm2 = eqx.nn.LayerNorm(8), eqx.nn.LayerNorm(8)
        bias = {f"use_{x}_bias": True for x in ("query", "key", "value", "output")}
        self.attention = eqx.nn.MultiheadAttention(2, 8, **bias, key=key)
        self.table = eqx.nn.Embedding(11, 8, key=key)

    def __call__(self, ids):
        x = jax.vmap(self.norm1)(jax.vmap(self.table)(ids))
        return jax.vmap(self.norm2)(x + self.attention(x, x, x))


class TorchBlock(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(8), torch.nn.LayerNorm(8)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.table = torch.nn.Embedding(11, 8)

    def forward(self, ids):
        x = self.norm1(self.table(ids))
        return self.norm2(x + self.attention(x, x, x)[0])


def test_attention_packed_and_apart():
    theirs, ids = lively(TorchBlock()), jnp.arange(6).reshape(2, 3)
    torch_ids = {"torch_example": torch.arange(6).reshape(2, 3)}
    ours, report = load_into(Block(KEY), theirs, example=ids, **torch_ids)
    assert report["attention/key_proj/weight"].torch == "attention.in_proj_weight[8:16]"
    back, _ = to_torch(ours, TorchBlock(), example=ids, **torch_ids)
    for name, value in back.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[name])


def test_a_wrong_module_is_named():
    class Wrong(Block):
        def __call__(self, ids):
            x = jax.vmap(self.norm1)(jax.vmap(self.table)(ids))
            return jax.vmap(self.norm2)(2 * x + self.attention(x, x, x))

    ids = jnp.arange(6).reshape(2, 3)
    torch_ids = {"torch_example": (torch.arange(6).reshape(2, 3),)}
    with pytest.raises(WrongWeights, match="the outputs differ"):
        to_torch(Wrong(KEY), TorchBlock(), example=ids, **torch_ids)
    with pytest.raises(WrongArguments, match="has no value"):
        to_torch(eqx.filter_eval_shape(Block, KEY), TorchBlock())
