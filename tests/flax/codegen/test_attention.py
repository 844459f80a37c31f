"""torch.nn's attention and Transformers, with masks; dropout of the probabilities."""

import jax
import pytest
import torch
from torch import nn

import tojax
from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import (
    arrays,
    assert_same_gradients,
    assert_same_values,
    loaded,
    prepared,
)

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # by torch's own
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
    file = loaded(tojax.flax.source(module, *inputs(2, 5, 7), style="linen"))
    model = getattr(file, cls.__name__)()
    variables = file.load_params({k: v.numpy() for k, v in module.state_dict().items()})
    for given in (inputs(2, 5, 7), inputs(3, 6, 4)):
        assert_same_values(module, lambda *x: model.apply(variables, *x), given)
    made = model.init(jax.random.key(0), *arrays(inputs(2, 5, 7)))
    assert jax.tree.structure(made) == jax.tree.structure(variables)
