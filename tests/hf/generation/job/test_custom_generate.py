"""Classes with a way of generating of their own: transformers' Python, computed in JAX."""

import dataclasses

import numpy as np
import pytest
import torch
import transformers as hf

import anyjax
from anyjax.errors import Unsupported
from anyjax.hf.generation.job.custom_generate import has_own

pytestmark = pytest.mark.sample(every=2)

SIZES = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
VISION = SIZES | dict(image_size=16, patch_size=8)
QUERIES = SIZES | dict(encoder_hidden_size=32, vocab_size=50)
TEXT = dict(vocab_size=60, max_position_embeddings=64, pad_token_id=1, bos_token_id=2)


def blip():
    text = SIZES | TEXT | dict(eos_token_id=3, sep_token_id=3, encoder_hidden_size=32)
    config = hf.BlipConfig(text_config=text, vision_config=VISION, projection_dim=32)
    batch = {"pixel_values": torch.randn(2, 3, 16, 16), "input_ids": torch.tensor([[2, 9, 3]] * 2)}
    return hf.BlipForConditionalGeneration(config), batch


def blip_2():
    text = hf.T5Config(
        vocab_size=60, d_model=32, d_kv=8, d_ff=64, num_layers=2, decoder_start_token_id=0
    )
    parts = dict(vision_config=VISION, qformer_config=QUERIES, text_config=text.to_dict())
    config = hf.Blip2Config(**parts, num_query_tokens=4, image_token_index=59)
    ids = torch.tensor([[59] * 4 + [5, 6, 7], [59] * 4 + [8, 9, 10]])
    batch = {"pixel_values": torch.randn(2, 3, 16, 16), "input_ids": ids}
    return hf.Blip2ForConditionalGeneration(config), batch | {"attention_mask": ids.new_ones(2, 7)}


def parakeet():
    encoder = SIZES | dict(num_mel_bins=16, subsampling_conv_channels=8, num_key_value_heads=4)
    config = hf.ParakeetCTCConfig(vocab_size=20, encoder_config=encoder)
    mask = torch.ones(2, 64, dtype=torch.long)
    mask[1, 40:] = 0
    return hf.ParakeetForCTC(config), {
        "input_features": torch.randn(2, 64, 16),
        "attention_mask": mask,
    }


@pytest.mark.parametrize("build", [blip, blip_2, parakeet])
def test_tokens_are_transformers_with_the_weights_of_the_model(build):
    torch.manual_seed(0)
    module, batch = build()
    module.eval()
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() > 1:
                weight.mul_(4)
    assert has_own(module)
    model = anyjax.from_torch(module)
    options = {} if build is parakeet else dict(max_new_tokens=6, do_sample=False)
    arrays = {k: v.numpy() for k, v in batch.items()}
    given = {k: v.copy() for k, v in arrays.items()}
    before = module.generate(**{k: v.clone() for k, v in batch.items()}, **options).numpy()
    np.testing.assert_array_equal(anyjax.generate(model, **arrays, **options), before)
    assert all(np.array_equal(arrays[k], given[k]) for k in given)

    with torch.no_grad():  # other weights than the module has: parts and all compute with these
        for weight in module.parameters():
            weight.copy_(weight.flip(0))
    after = module.generate(**{k: v.clone() for k, v in batch.items()}, **options).numpy()
    assert not np.array_equal(before, after)
    params = {k: np.flip(np.asarray(v), 0) for k, v in model.params.items()}
    changed = dataclasses.replace(model, params=params)
    np.testing.assert_array_equal(anyjax.generate(changed, **arrays, **options), after)
    np.testing.assert_array_equal(anyjax.generate(model, **arrays, **options), before)


def test_a_loop_that_is_saved_is_a_program(tmp_path):
    module, batch = blip()
    model = anyjax.from_torch(module.eval())
    with pytest.raises(Unsupported, match="a way of generating of its own"):
        model.save(
            tmp_path / "a",
            **{k: v.numpy() for k, v in batch.items()},
            generate={"max_new_tokens": 4},
            platforms=("cpu",),
        )


def test_a_step_that_transformers_cannot_take_here():
    class Odd(hf.GPT2LMHeadModel):
        def generate(self, input_ids, **options):
            return self.nothing(input_ids)

    module = Odd(hf.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11))
    with pytest.raises(Unsupported, match="Odd has a way of generating of its own"):
        anyjax.generate(anyjax.from_torch(module.eval()), np.array([[1, 2]]))
