"""Texts that grow beyond sliding windows."""

import numpy as np
import pytest
import torch
import transformers as t

import anyjax
from tests.models import tiny
from tests.sampling import further

WINDOW = 5
INKLING = dict(
    layer_types=["hybrid_sliding", "hybrid"],
    mlp_layer_types=["dense", "sparse"],
    sliding_window_size=WINDOW,
    head_dim=8,
    swa_head_dim=8,
    swa_num_attention_heads=4,
    swa_num_key_value_heads=2,
    d_rel=8,
    rel_extent=32,
    n_routed_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
)
BUILD = {
    "mistral": lambda: t.MistralForCausalLM(
        t.MistralConfig(**tiny.DECODER, sliding_window=WINDOW, initializer_range=0.3)
    ),
    "gemma3": lambda: t.Gemma3ForCausalLM(
        t.Gemma3TextConfig(
            **tiny.DECODER,
            head_dim=8,
            sliding_window=WINDOW,
            layer_types=["sliding_attention", "full_attention"],
            initializer_range=0.3,
        )
    ),
    "inkling": lambda: t.InklingForCausalLM(
        t.InklingTextConfig(**tiny.DECODER, **INKLING, initializer_range=0.3)
    ),
}
CASES = [
    ("inkling", 3),
    *further(("inkling", 9), *((k, n) for k in ("mistral", "gemma3") for n in (3, 9))),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_outside_of_the_window_is_not_seen(case):
    name, length = case
    torch.manual_seed(0)
    module = BUILD[name]().eval()
    ids = tiny.ids(length, 2)
    mask = torch.ones_like(ids)
    mask[0, 0] = 0
    options = {"max_new_tokens": 12, "eos_token_id": -1, "do_sample": False}
    want = module.generate(ids, attention_mask=mask, **options)
    got = anyjax.generate(anyjax.from_torch(module), ids.numpy(), mask.numpy(), **options)
    np.testing.assert_array_equal(got, want.numpy())
