"""Models of transformers inside ``on_jax``: outputs and gradients as torch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import anyjax
from anyjax.torch import interop
from tests.tolerance import assert_close

SMALL = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
IDS = torch.tensor([[5, 1, 7, 2], [3, 3, 8, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
MODELS = {
    "bert": (
        lambda: transformers.BertModel(transformers.BertConfig(vocab_size=20, **SMALL)),
        {"input_ids": IDS, "attention_mask": MASK},
    ),
    "gpt2": (
        lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=20, n_embd=16, n_layer=1, n_head=2, n_positions=8)
        ),
        {"input_ids": IDS, "labels": IDS},
    ),
    "resnet": (
        lambda: transformers.ResNetModel(
            transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1],
                                      layer_type="basic")
        ),
        {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16).sin()},
    ),
}  # fmt: skip


def outcome(model, inputs):
    """(a summary of the output, gradients by name)"""
    out = model.eval()(**inputs)
    loss = out.loss if out.get("loss") is not None else out[0].pow(2).mean()
    loss.backward()
    numbers = lambda x: np.asarray(x.detach())
    grads = {k: numbers(p.grad) for k, p in model.named_parameters() if p.grad is not None}
    return numbers(out[0]), numbers(loss), grads


@pytest.mark.parametrize("name", MODELS)
def test_models_are_torchs(name):
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model = make()
    want = outcome(model, inputs)
    model.zero_grad()
    interop.to_jax(model)
    with anyjax.torch.on_jax():
        got = outcome(model, interop.to_jax(inputs))
    assert_close(got[:2], want[:2], reduction=512)
    largest = max(float(abs(g).max()) for g in want[2].values())
    assert_close(got[2], want[2], reduction=2**12, scale=largest)  # some are zero but for rounding
