"""Steps of generation with models whose modules keep tensors from step to step."""

import numpy as np
import pytest
import torch
from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

import anyjax

IDS = np.array([[5, 9, 7, 30, 12], [3, 3, 8, 1, 40]])


@pytest.fixture(scope="module")
def recurrent():
    """Weights so large that tokens depend on the recurrent state."""
    torch.manual_seed(0)
    config = RecurrentGemmaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        lru_width=32,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=8,
        attention_window_size=64,
        block_types=["recurrent", "attention"],
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    module = RecurrentGemmaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(6 if weight.ndim > 1 else 1)
    return module


def test_modules_keep_tensors_from_step_to_step(recurrent):
    options = {"max_new_tokens": 8, "do_sample": False}
    wanted = recurrent.generate(torch.from_numpy(IDS), **options)
    model = anyjax.from_torch(recurrent)
    np.testing.assert_array_equal(anyjax.generate(model, IDS, **options), wanted)
    shorter = anyjax.generate(model, IDS[:, :3], **options)  # nothing of the first text is left
    np.testing.assert_array_equal(
        shorter, recurrent.generate(torch.from_numpy(IDS[:, :3]), **options)
    )


def test_steps_of_ones_own(recurrent):
    model = anyjax.from_torch(recurrent)
    ids = np.asarray(anyjax.generate(model, IDS, max_new_tokens=4, do_sample=False))
    logits, cache = model.cache(12).prefill(model.params, IDS)
    for step in range(4):
        np.testing.assert_array_equal(logits.argmax(-1), ids[:, IDS.shape[1] + step])
        logits, cache = cache.step(model.params, logits.argmax(-1))
