"""Biases by distance (ALiBi), which models make out of the mask: left-padded prompts."""

import numpy as np
import pytest
import torch
import transformers

import anyjax
from tests.models import tiny

pytestmark = pytest.mark.sample(every=10)

SIZES = dict(vocab_size=96, pad_token_id=0, bos_token_id=1, eos_token_id=2)
FALCON = SIZES | dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=True)
CONFIGS = {
    "falcon": lambda: transformers.FalconConfig(**FALCON, parallel_attn=False),
    "falcon with groups": lambda: transformers.FalconConfig(
        **FALCON, new_decoder_architecture=True, num_kv_heads=2
    ),
    "falcon of three heads": lambda: transformers.FalconConfig(
        **FALCON | dict(hidden_size=48, num_attention_heads=3)
    ),
    "bloom": lambda: transformers.BloomConfig(**SIZES, hidden_size=32, n_layer=2, n_head=4),
    "mpt": lambda: transformers.MptConfig(
        **SIZES, d_model=32, n_layers=2, n_heads=4, max_seq_len=64
    ),
}
WAYS = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "lookup": {"prompt_lookup_num_tokens": 2},
    "no cache": {"use_cache": False},
}


def of(name):
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(CONFIGS[name]()).eval()


def prompts(rows=2):
    ids, mask = tiny.ids(9, rows), torch.ones(rows, 9, dtype=torch.long)
    mask[0, :4], ids[0, :4] = 0, 0
    return ids, mask


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "whole"])
def test_as_transformers(name, padded):
    module, (ids, mask) = of(name), prompts()
    mask = mask if padded else torch.ones_like(mask)
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": -1}
    want = module.generate(ids, attention_mask=mask, **options)
    got = anyjax.generate(
        anyjax.from_torch(module), ids.numpy(), attention_mask=mask.numpy(), **options
    )
    np.testing.assert_array_equal(got, want.numpy())


@pytest.mark.parametrize("way", WAYS)
def test_other_ways_of_decoding(way):
    module, (ids, mask) = of("falcon"), prompts(1 if way == "lookup" else 2)
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": -1, **WAYS[way]}
    want = module.generate(ids, attention_mask=mask, **options)
    got = anyjax.generate(
        anyjax.from_torch(module), ids.numpy(), attention_mask=mask.numpy(), **options
    )
    np.testing.assert_array_equal(got, want.numpy())


@pytest.mark.parametrize("padded", [True, False], ids=["padded", "whole"])
def test_a_loop_of_ones_own(padded):
    module, (ids, mask) = of("falcon"), prompts()
    mask = mask if padded else torch.ones_like(mask)
    want = module.generate(
        ids, attention_mask=mask, max_new_tokens=5, do_sample=False, eos_token_id=-1
    )
    model, tokens = anyjax.from_torch(module), []
    given = mask.numpy() if padded else None
    logits, cache = model.cache(16).prefill(model.params, ids.numpy(), given)
    for _ in range(5):
        tokens.append(logits.argmax(-1))
        logits, cache = cache.step(model.params, tokens[-1])
    np.testing.assert_array_equal(np.stack(tokens, 1), want[:, 9:].numpy())
