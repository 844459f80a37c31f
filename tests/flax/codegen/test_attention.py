"""torch.nn's attention and Transformers, with masks; dropout of the probabilities."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from torch import nn

import anyjax
from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import (
    arrays,
    assert_same_gradients,
    assert_same_values,
    leaves,
    loaded,
    prepared,
)

pytestmark = [
    pytest.mark.sample(every=15),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),  # by torch's own
]
HOW = dict(dropout=0.3, batch_first=True)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 4, 32, **HOW)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x, mask, padding):
        return self.encoder(x, mask, src_key_padding_mask=padding)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerDecoderLayer(24, 4, 32, norm_first=True, **HOW)
        self.decoder = nn.TransformerDecoder(layer, 2, nn.LayerNorm(24))

    def forward(self, x, memory, mask, padding):
        return self.decoder(x, memory, tgt_mask=mask, memory_key_padding_mask=padding)


class Translator(nn.Module):
    """With lengths before batches, as PyTorch has it by default."""

    def __init__(self):
        super().__init__()
        self.transformer = nn.Transformer(24, 4, 2, 2, 32, dropout=0.3)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[0])
        return self.transformer(source, target, tgt_mask=mask)


class Looking(nn.Module):
    """Probabilities are read, of all heads and of their mean; a mask for each head."""

    def __init__(self):
        super().__init__()
        self.own = nn.MultiheadAttention(24, 4, bias=False, batch_first=True)
        self.other = nn.MultiheadAttention(24, 3, dropout=0.2, batch_first=True)

    def forward(self, x, memory, mask):
        y, mean = self.own(x, x, x, attn_mask=mask)
        y, every = self.other(y, memory, memory, average_attn_weights=False)
        return y, mean, every


class Shared(nn.Module):
    """Keys as wide as they like, and one module that is called twice."""

    def __init__(self):
        super().__init__()
        self.wide = nn.MultiheadAttention(24, 4, kdim=16, vdim=16, batch_first=True)
        self.twice = nn.MultiheadAttention(24, 4, batch_first=True)

    def forward(self, x, memory):
        x = self.wide(x, memory, memory, need_weights=False)[0]
        for _ in range(2):
            x = x + self.twice(x, x, x, need_weights=False)[0]
        return x


def causal(n):
    return nn.Transformer.generate_square_subsequent_mask(n)


def padding(batch, length):
    """The last of a batch is shorter."""
    mask = torch.zeros(batch, length, dtype=torch.bool)
    mask[-1, length - 2 :] = True
    return mask


CASES = {
    "encoder": (Encoder, lambda b, n, m: (drawn(b, n, 24), causal(n).bool(), padding(b, n))),
    "decoder": (
        Decoder,
        lambda b, n, m: (drawn(b, n, 24), drawn(b, m, 24), causal(n).bool(), padding(b, m)),
    ),
    "translator": (Translator, lambda b, n, m: (drawn(n, b, 24), drawn(m, b, 24))),
    "looking": (
        Looking,
        lambda b, n, m: (drawn(b, n, 24), drawn(b, m, 24), causal(n).repeat(4 * b, 1, 1)),
    ),
    "shared": (Shared, lambda b, n, m: (drawn(b, n, 24), drawn(b, m, 16))),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    torch.manual_seed(0)
    cls, inputs = CASES[name]
    module = cls().eval()
    text, model = prepared(module, inputs(2, 5, 7))
    model.eval()
    assert_same_values(module, model, inputs(2, 5, 7))
    assert_same_values(module, model, inputs(3, 6, 4))
    assert_same_gradients(module, model, inputs(2, 5, 7))
    assert text.count("class MultiheadAttention") == 1 or name == "shared"


@pytest.mark.parametrize("name", CASES)
def test_linen(name):
    torch.manual_seed(0)
    cls, inputs = CASES[name]
    module = cls().eval()
    file = loaded(anyjax.flax.source(module, *inputs(2, 5, 7), style="linen"))
    model = getattr(file, cls.__name__)()
    variables = file.load_params({k: v.numpy() for k, v in module.state_dict().items()})
    for example in (inputs(2, 5, 7), inputs(3, 6, 4)):
        assert_same_values(module, lambda *x: model.apply(variables, *x), example)
    initialised = model.init(jax.random.key(0), *arrays(inputs(2, 5, 7)))
    assert jax.tree.structure(initialised) == jax.tree.structure(variables)


class Dropping(nn.Module):
    """Attention as a function and by hand, dropped out only in training mode."""

    def __init__(self, attn_pdrop):
        super().__init__()
        self.attn_pdrop = attn_pdrop

    def forward(self, query, key, value, wide):
        rate = self.attn_pdrop if self.training else 0.0
        one = F.scaled_dot_product_attention(query, key, value, dropout_p=rate)
        other = F.scaled_dot_product_attention(query, key, wide, dropout_p=rate)
        weights = F.dropout((query @ key.mT).softmax(-1), p=rate)
        return one, other, weights @ value


def running(module, inputs, style):
    """(outputs in evaluation mode, those in training mode by a seed)"""
    file = loaded(anyjax.flax.source(module, *inputs, style=style))
    cls = getattr(file, type(module).__name__)
    values = arrays(inputs)
    weights = {k: v.numpy() for k, v in module.state_dict().items()}
    if style == "nnx":
        model = file.load_params(cls(rngs=nnx.Rngs(0)), weights)
        model.eval()
        out = model(*values)
        model.train()
        return out, lambda seed: model(*values)
    variables, model = file.load_params(weights), cls()
    rngs = lambda seed: {"dropout": jax.random.key(seed)}
    train = lambda seed: model.apply(variables, *values, deterministic=False, rngs=rngs(seed))
    return model.apply(variables, *values), train


@pytest.mark.parametrize("style", ["nnx", "linen"])
def test_probabilities_are_dropped_out_in_training(style):
    """Of 16 equal ones each comes through alone: it is 0, or 1 / (1 - rate) times as large."""
    query, key = torch.zeros(8, 4, 16, 16), drawn(8, 4, 16, 16)
    value = torch.eye(16).expand(8, 4, 16, 16)
    inputs = (query, key, value, torch.cat([value, value], -1))
    outputs, train = running(Dropping(0.3).eval(), inputs, style)
    for x in leaves(outputs):
        np.testing.assert_allclose(x, np.full(x.shape, 1 / 16) * (np.asarray(x) > 0), rtol=1e-5)
    first, second = train(0), train(1)
    for x, y in zip(leaves(first), leaves(second)):
        x, count = np.asarray(x)[..., :16], x[..., :16].size
        assert abs((x == 0).mean() - 0.3) < 5 * (0.3 * 0.7 / count) ** 0.5
        np.testing.assert_allclose(x[x > 0], 1 / 16 / 0.7, rtol=1e-5)
        assert (x != np.asarray(y)[..., :16]).any()


@pytest.mark.parametrize("style", ["nnx", "linen"])
def test_nothing_is_dropped_out_without_a_rate(style):
    inputs = (drawn(2, 3, 5, 8), drawn(2, 3, 7, 8), drawn(2, 3, 7, 8), drawn(2, 3, 7, 4))
    text = anyjax.flax.source(Dropping(0.0), *inputs, style=style)
    assert "jax.nn.dot_product_attention(" in text and "Dropout(" not in text


@pytest.mark.parametrize("style", ["nnx", "linen"])
def test_attention_of_torch_drops_out(style):
    """On average over draws the probabilities are those of evaluation mode."""
    torch.manual_seed(0)
    module = Looking().eval()
    outputs, train = running(module, CASES["looking"][1](2, 5, 7), style)
    draws = jnp.stack([train(seed)[2] for seed in range(200)])
    assert abs((draws == 0).mean() - 0.2) < 5 * (0.2 * 0.8 / draws.size) ** 0.5
    np.testing.assert_allclose(draws.mean(0), outputs[2], atol=0.1)
    np.testing.assert_array_equal(train(0)[1], outputs[1])


@pytest.mark.parametrize("fails", [False, True])
def test_modules_are_as_before(fails):
    """Whatever a call in training mode writes, and where it is refused."""

    class Counting(Dropping):
        def __init__(self):
            super().__init__(0.1)
            self.norm = nn.BatchNorm1d(16)
            self.seen = []

        def forward(self, x):
            if self.training and fails:
                raise ValueError("labels are missing")
            self.seen.append(1)
            x = self.norm(x.mean(1))[:, None]
            return super().forward(x, x, x, x)[0]

    module = Counting()
    initial = {k: x.clone() for k, x in module.state_dict().items()}
    state = torch.get_rng_state()
    warning = pytest.warns(UserWarning, match="left out.*labels") if fails else nullcontext()
    with warning:
        text = anyjax.flax.source(module, drawn(4, 3, 16))
    assert ("Dropout(" in text) != fails
    assert module.training and module.norm.training
    assert torch.equal(state, torch.get_rng_state())
    for k, x in module.state_dict().items():
        assert torch.equal(x, initial[k])


class Telling(Dropping):
    """Dropout where only training mode comes to."""

    def forward(self, x):
        return F.dropout(x, self.attn_pdrop) if self.training else 2 * x


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, dropout=0.1, kdim=4, vdim=4, batch_first=True)

    def forward(self, x):
        return self.attend(x, x[..., :4], x[..., :4])


@pytest.mark.parametrize("make, where", [(lambda: Telling(0.1), "whole"), (Wide, "attend")])
def test_dropout_that_cannot_be_written_is_said(make, where):
    with pytest.warns(UserWarning, match=f"left out.*{where}"):
        anyjax.flax.source(make(), drawn(2, 5, 8))


@pytest.mark.parametrize("style", ["nnx", "linen"])
def test_attention_is_that_of_jax_where_nothing_is_dropped_out(style, monkeypatch):
    """So that whoever has a GPU can choose an implementation of it."""
    calls, original = [], jax.nn.dot_product_attention
    counted = lambda *args, **how: calls.append(args) or original(*args, **how)
    monkeypatch.setattr(jax.nn, "dot_product_attention", counted)
    value = drawn(2, 3, 7, 8)
    inputs = (drawn(2, 3, 5, 8), drawn(2, 3, 7, 8), value, torch.cat([value, value], -1))
    _, train = running(Dropping(0.3).eval(), inputs, style)
    count = len(calls)  # of the check of the source, and of the call in evaluation mode
    assert count
    train(0)
    assert len(calls) == count
