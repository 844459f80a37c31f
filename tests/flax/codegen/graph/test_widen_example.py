"""Examples with a batch or a length of 1: the file takes others, or a warning says why not."""

import warnings

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

import anyjax
from tests.flax.codegen.models import drawn, ids
from tests.flax.codegen.running import assert_same_values, prepared

pytestmark = pytest.mark.sample(every=15)


class Heads(nn.Module):
    """What has its sizes in its reshapes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        batch, length, _ = x.shape
        x = self.linear(x).reshape(batch, length, 2, 3).transpose(1, 2)
        return x.reshape(batch, 2 * length, 3).softmax(1)


@pytest.fixture
def silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


@pytest.mark.parametrize("shape", [(1, 5, 6), (4, 1, 6), (1, 1, 6)])
def test_a_size_of_1_may_vary(silent, shape):
    module = Heads().eval()
    text, model = prepared(module, (drawn(*shape),))
    assert "reshape(1" not in text and "float32 (batch, length, features)" in text
    assert_same_values(module, model, (drawn(3, 7, 6),))
    assert_same_values(module, model, (drawn(1, 4, 6),))
    assert_same_values(module, model, (drawn(1, 1, 6),))


def test_tokens_of_one_sequence(silent):
    sizes = dict(hidden_size=16, num_attention_heads=2, intermediate_size=24, vocab_size=96)
    module = BertModel(BertConfig(**sizes, num_hidden_layers=1, max_position_embeddings=16)).eval()
    text = anyjax.flax.source(module, input_ids=ids(1, 7), attention_mask=torch.ones(1, 7))
    assert "input_ids: int32 (batch, length)" in text and "reshape(1," not in text


class Squeezed(nn.Module):
    """One row alone."""

    def forward(self, x):
        return x.reshape(5, 6) * 2


class Special(nn.Module):
    """What does something else for one row."""

    def forward(self, x):
        return x * 2 if x.shape[0] == 1 else x + 1


@pytest.mark.parametrize(("cls", "why"), [(Squeezed, "invalid for"), (Special, "other values")])
def test_a_module_for_one_row_is_warned_of(cls, why):
    with pytest.warns(UserWarning, match=rf"(?s)a batch of 1 and {cls.__name__}.*{why}"):
        anyjax.flax.source(cls(), drawn(1, 5, 6))


def test_tokens_of_one_place_are_warned_of():
    class One(nn.Module):
        def forward(self, tokens):
            return tokens.reshape(tokens.shape[0]) * 2.0

    with pytest.warns(UserWarning, match="a length of 1 and One"):
        anyjax.flax.source(One(), ids(3, 1))


class Timed(nn.Module):
    """A batch beside a number for each row, a mask that all rows share, and a constant."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x, time, mask, scale):
        return self.linear(x).masked_fill(mask, 0.0) * time[:, None, None] * scale


def test_other_arrays_of_one_row(silent):
    mask = torch.ones(5, 1, dtype=torch.bool).triu(-2)
    inputs = drawn(1, 5, 6), torch.tensor([0.5]), mask, 2.0
    assert "float32 (batch, length, features)" in anyjax.flax.source(Timed().eval(), *inputs)


def test_one_feature_is_no_length(silent):
    text = anyjax.flax.source(nn.Linear(1, 4), drawn(3, 1))
    assert "float32 (batch, 1)" in text
