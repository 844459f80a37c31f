"""Masks of positions are written as a person writes them."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from tests.flax.codegen.models import ids
from tests.flax.codegen.running import assert_same_values, prepared

SIZES = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2)


class Logits(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = LlamaForCausalLM(LlamaConfig(**SIZES, vocab_size=30))

    def forward(self, input_ids, attention_mask=None):
        return self.model(input_ids, attention_mask=attention_mask, use_cache=False).logits


def test_a_causal_mask_is_a_comparison_of_positions():
    """The check for texts that are packed into one row is not written: there is one."""
    module = Logits().eval()
    text, model = prepared(module, (ids(2, 7),))
    assert "jnp.arange(length) <= jnp.arange(length)[:, None]" in text
    assert "jnp.diff" not in text and "cumsum" not in text
    assert_same_values(module, model, (ids(3, 9),))


class Padded(nn.Module):
    def forward(self, mask):
        batch, length = mask.shape
        rows = torch.arange(batch)[:, None, None, None]
        return (
            mask.bool()[rows, torch.arange(length)[None, None, None]] & mask.bool()[:, None, None]
        )


def test_a_mask_of_padding_gets_dimensions_not_indices():
    text, model = prepared(Padded(), (ids(2, 7),))
    assert text.count("[:, None, None]") == 2 and "arange" not in text
    assert_same_values(Padded(), model, (ids(3, 9),))


class Chosen(nn.Module):
    """Ranges that are not all positions, and that are in another order."""

    def forward(self, x, y):
        n, m = x.shape
        rows, columns = torch.arange(n), torch.arange(m)
        picked = x[rows[:, None], torch.arange(2)]
        turned = x[rows, columns[:, None]]
        steps = torch.diff(columns, prepend=columns[:1])
        return picked, turned, x[rows[:, None], columns] + y, steps


def test_other_ranges_are_kept():
    module = Chosen()
    inputs = torch.randn(4, 5), torch.randn(4, 5)
    _, model = prepared(module, inputs)
    assert_same_values(module, model, inputs)
    assert_same_values(module, model, (torch.randn(3, 6), torch.randn(3, 6)))
