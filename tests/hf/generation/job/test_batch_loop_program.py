"""Saved loops of batches with pictures, sounds or an encoder: transformers' tokens, or an error."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import MissingRng, Unsupported, WrongArguments
from tests.hf.generation import test_generate_images as images
from tests.hf.generation import test_generate_speech as speech
from tests.hf.generation.test_generate import built
from tests.models import tiny
from tests.sampling import further

pytestmark = pytest.mark.sample(every=10)


def saved(tmp_path, model, batch, **options):
    options = {"max_new_tokens": 6} | options
    model.save(tmp_path / "m", **batch, platforms=("cpu",), generate=options)
    return anyjax.load(tmp_path / "m")


PICTURES = ["llava", *further("qwen2", "qwen25", "video2", "paligemma")]


@pytest.mark.parametrize("name", PICTURES)
def test_pictures(tmp_path, name):
    module, model, tensors = images.built(getattr(images, name))
    batch = images.arrays(tensors)
    loaded = saved(tmp_path, model, batch)
    texts = []
    for scale in (1, -3):  # another picture
        changed = {k: scale * x if k.startswith("pixel") else x for k, x in tensors.items()}
        texts.append(module.generate(**changed, max_new_tokens=6, do_sample=False).numpy())
        got = anyjax.generate(loaded, **images.arrays(changed))
        np.testing.assert_array_equal(got, texts[-1])
    # a tiny PaliGemma says the same of all pictures
    assert name == "paligemma" or not np.array_equal(*texts)
    ids = np.where(batch["input_ids"] == 5, 6, batch["input_ids"])
    want = module.generate(
        **tensors | {"input_ids": torch.tensor(ids)}, max_new_tokens=3, do_sample=False
    )
    got = anyjax.generate(loaded, **batch | {"input_ids": ids}, max_new_tokens=3)
    np.testing.assert_array_equal(got, want)


def test_another_layout_is_refused(tmp_path):
    _, model, tensors = images.built(images.qwen2)
    batch = images.arrays(tensors)
    loaded = saved(tmp_path, model, batch)
    with pytest.raises(WrongArguments, match="generate from another batch") as caught:
        anyjax.generate(loaded, **batch | {"image_grid_thw": np.array([[1, 6, 4], [1, 4, 4]])})
    assert caught.value.why == "image_grid_thw has other values, and they decide what is computed"
    with pytest.raises(WrongArguments, match="attention_mask has other values"):
        anyjax.generate(loaded, **batch | {"attention_mask": batch["attention_mask"] * 0 + 1})
    with pytest.raises(WrongArguments, match="it takes input_ids, pixel_values"):
        anyjax.generate(loaded, batch["input_ids"])
    with pytest.raises(WrongArguments, match="do_sample=True for a loaded model"):
        anyjax.generate(loaded, **batch, do_sample=True)


def test_an_encoder(tmp_path):
    module, model = built("t5")
    ids, mask = tiny.ids(9, 2), torch.ones(2, 9, dtype=torch.long)
    start = np.zeros((2, 1), np.int64)
    first = {"input_ids": ids.numpy(), "attention_mask": mask.numpy(), "decoder_input_ids": start}
    loaded = saved(tmp_path, model, first)
    padded = mask.clone()
    padded[1, 4:] = 0
    for rows, sees in ((ids, mask), (ids.flip(1), padded)):
        want = module.generate(rows, attention_mask=sees, max_new_tokens=6, do_sample=False)
        batch = {"input_ids": rows.numpy(), "attention_mask": sees.numpy()}
        np.testing.assert_array_equal(anyjax.generate(loaded, **batch), want)
    np.testing.assert_array_equal(anyjax.generate(loaded, **batch, max_new_tokens=0), start)


@pytest.mark.parametrize("end", [31, *further(3, 16, 18)])
def test_sounds(tmp_path, end):
    """Whisper's texts come without what they start from, and without their ends."""
    module, model = speech.built()
    sound, start = 3 * tiny.noise(2, 16, 40), torch.full((2, 1), 2)
    batch = {"input_features": sound.numpy(), "decoder_input_ids": start.numpy()}
    loaded = saved(tmp_path, model, batch, eos_token_id=end)
    for features in (sound, -2 * sound):
        options = {"eos_token_id": end, "max_new_tokens": 6}
        want = module.generate(features, decoder_input_ids=start, **options)
        got = anyjax.generate(loaded, **batch | {"input_features": features.numpy()})
        np.testing.assert_array_equal(got, want)


def test_sampling_draws_the_same(tmp_path):
    _, model, tensors = images.built(images.llava)
    batch, options = images.arrays(tensors), {"do_sample": True, "top_k": 9, "max_new_tokens": 5}
    loaded, key = saved(tmp_path, model, batch, **options), jax.random.key(3)
    want = anyjax.generate(model, **batch, **options, rng=key)
    np.testing.assert_array_equal(anyjax.generate(loaded, **batch, rng=key), want)
    with pytest.raises(MissingRng):
        anyjax.generate(loaded, **batch)


def test_refused_before_anything_is_written(tmp_path):
    _, model, tensors = images.built(images.llava)
    batch, options = images.arrays(tensors), {"max_new_tokens": 4}
    with pytest.raises(Unsupported, match="num_beams"):
        saved(tmp_path, model, batch, num_beams=2)
    with pytest.raises(Unsupported, match="made for one size of its batch"):
        model.save(tmp_path / "m", **batch, shapes={"input_ids": "b, l"}, generate=options)
    with pytest.raises(Unsupported, match="depend on the prompt"):
        saved(tmp_path, model, batch, encoder_repetition_penalty=1.5)
    _, grids, tensors = images.built(images.qwen2)
    shapes = {k: jax.ShapeDtypeStruct(x.shape, x.numpy().dtype) for k, x in tensors.items()}
    with pytest.raises(WrongArguments, match="with the shape of attention_mask alone"):
        grids.save(tmp_path / "m", **shapes, generate=options)
    assert not (tmp_path / "m").exists()
