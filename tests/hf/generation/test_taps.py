"""Values inside of a model for each step of a text, and edits while it is written."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

import anyjax
from anyjax.errors import Unsupported
from anyjax.transforms import edit, intermediates, roll

IDS = np.arange(10).reshape(2, 5)
LAYERS = r"layers\.\d+$"


@pytest.fixture(scope="module")
def llama():
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=64, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("prepare", [lambda model: model, lambda model: roll(model, IDS)])
def test_each_step_has_the_values_of_a_call_with_the_whole_text(llama, prepare):
    model = anyjax.from_torch(llama)
    ids, steps = anyjax.generate(intermediates(prepare(model), LAYERS), IDS, max_new_tokens=6)
    np.testing.assert_array_equal(ids, anyjax.generate(model, IDS, max_new_tokens=6))
    _, expected = intermediates(model, LAYERS)(np.asarray(ids)[:, :-1])
    assert [*steps] == [*expected]
    for path, values in steps.items():
        assert [x.shape[1] for x in values] == [5, 1, 1, 1, 1, 1]
        np.testing.assert_allclose(jnp.concatenate(values, 1), expected[path], atol=1e-6)


@pytest.mark.parametrize("prepare", [lambda model: model, lambda model: roll(model, IDS)])
def test_an_edit_holds_for_every_step_as_torchs_hook_does(llama, prepare):
    negative = edit(prepare(anyjax.from_torch(llama)), {r"layers\.2$": lambda hidden: -hidden})
    ids = anyjax.generate(negative, IDS, max_new_tokens=6)
    handle = llama.model.layers[2].register_forward_hook(lambda module, args, out: -out)
    expected = llama.generate(torch.from_numpy(IDS), max_new_tokens=6, do_sample=False)
    handle.remove()
    np.testing.assert_array_equal(ids, expected.numpy())


@pytest.mark.parametrize("option", [{"num_beams": 2}, {"use_cache": False}])
def test_ways_of_decoding_without_one_value_a_step_are_refused(llama, option):
    with pytest.raises(Unsupported, match="together with anyjax"):
        model = intermediates(anyjax.from_torch(llama), LAYERS)
        anyjax.generate(model, IDS, max_new_tokens=6, **option)
