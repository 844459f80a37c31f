"""Rotary embeddings whose frequencies depend on the length of the text."""

import jax
import numpy as np
import pytest
import torch
import transformers as t

import anyjax
from anyjax.errors import Unsupported
from tests.models import tiny
from tests.sampling import further
from tests.tolerance import assert_close

SWITCH = 16
KINDS = {
    "dynamic": dict(factor=2.0),
    "yarn": dict(factor=2.0, original_max_position_embeddings=SWITCH),
    "longrope": dict(
        short_factor=[1.0, 1.1, 1.2, 1.3],
        long_factor=[2.0, 2.5, 3.0, 3.5],
        original_max_position_embeddings=SWITCH,
        factor=2.0,
        short_mscale=1.1,
        long_mscale=1.3,
    ),
}
OPTIONS = {"max_new_tokens": 14, "eos_token_id": -1, "do_sample": False, "use_cache": True}
pytestmark = [
    pytest.mark.sample(every=10),
    pytest.mark.filterwarnings("error::anyjax.errors.SlowGeneration"),
]


def build(name, kind="longrope", **extra):
    """Weights of a size that makes every position count."""
    torch.manual_seed(0)
    rope = {"rope_type": kind, "rope_theta": 10000.0} | KINDS[kind]
    sizes = {"max_position_embeddings": SWITCH, "original_max_position_embeddings": SWITCH}
    options = tiny.DECODER | sizes | {"initializer_range": 0.3, "rope_parameters": rope} | extra
    return getattr(t, f"{name}ForCausalLM")(getattr(t, f"{name}Config")(**options)).eval()


def prompts(length=10, batch=2):
    ids = tiny.ids(length, batch)
    mask = torch.ones_like(ids)
    mask[0, : 3 * (batch - 1)] = 0
    return ids, mask


def assert_same(make, length=10, batch=2, **options):
    ids, mask = prompts(length, batch)
    options = OPTIONS | options
    want = make().generate(ids, attention_mask=mask, **options)
    got = anyjax.generate(anyjax.from_torch(make()), ids.numpy(), mask.numpy(), **options)
    np.testing.assert_array_equal(got, want.numpy())
    return want


GROWING = [
    ("dynamic", True),
    ("longrope", False),
    *further(("dynamic", False), ("longrope", True), ("yarn", True), ("yarn", False)),
]


@pytest.mark.parametrize("case", GROWING, ids=str)
def test_frequencies_follow_the_text(case):
    kind, use_cache = case
    assert_same(lambda: build("Llama", kind), use_cache=use_cache)


def test_frequencies_follow_positions_that_are_traced():
    """Only one of its ways writes to a number that the module keeps."""
    module = build("Llama", "dynamic")
    model, ids = anyjax.from_torch(module), tiny.ids(20, 1)
    call = lambda params, state, ids, at: model.apply(
        params, ids, position_ids=at, use_cache=False, state=state, mutable=True
    )
    run, state = jax.jit(call), model.state
    for count in (10, 20, 18, 12):  # 18 has the frequencies of 20
        here, at = ids[:, :count], np.arange(count)[None]
        want = module(here, position_ids=torch.tensor(at), use_cache=False).logits
        got, state = run(model.params, state, here.numpy(), at)
        assert_close(got.logits, want, reduction=tiny.TEXT["intermediate_size"])
        kept = state["model.rotary_emb.max_seq_len_cached"]
        assert int(kept) == int(module.model.rotary_emb.max_seq_len_cached)


RENEWED = [
    ("Phi3", {}),
    *further(
        ("Phi3", {"num_beams": 3}),
        ("Phi3", {"max_new_tokens": 6}),  # ends before
        ("Phi3", {"max_new_tokens": 7}),  # ends there
        ("Phi3", {"length": SWITCH, "batch": 1}),  # begins there
        ("Phi3", {"length": SWITCH + 1}),  # begins behind
        ("Phi3", {"eos_token_id": 77, "repetition_penalty": 1.4}),
        ("Phimoe", {}),
        ("Phimoe", {"num_beams": 3}),
    ),
]


@pytest.mark.parametrize("case", RENEWED, ids=str)
def test_a_cache_that_is_made_anew(case):
    """These read the whole text again where the long frequencies begin."""
    name, how = case
    assert_same(lambda: build(name, max_position_embeddings=4 * SWITCH), **how)


@pytest.mark.conformance
def test_streamed_across_the_change():
    class Streamer:
        said = []

        def put(self, ids):
            self.said += ids.reshape(-1).tolist()

        def end(self):
            self.said.append("end")

    make = lambda: build("Phi3", max_position_embeddings=4 * SWITCH)
    ids, streamer = prompts(batch=1)[0], Streamer()
    want = make().generate(ids, **OPTIONS)
    anyjax.generate(anyjax.from_torch(make()), ids.numpy(), streamer=streamer, **OPTIONS)
    assert streamer.said == [*want[0].tolist(), "end"]


def test_caches_of_their_own_are_refused():
    model = anyjax.from_torch(build("Phi3", max_position_embeddings=4 * SWITCH))
    ids = prompts()[0].numpy()
    for how in ({"prompt_lookup_num_tokens": 3}, {"guidance_scale": 2.0}):
        with pytest.raises(Unsupported, match="made anew within this text"):
            anyjax.generate(model, ids, **OPTIONS | how)
        assert anyjax.generate(model, ids, **OPTIONS | how | {"max_new_tokens": 6}).shape == (2, 16)
    with pytest.raises(Unsupported, match=r"model.cache\(17\) and a prompt of 10 tokens"):
        model.cache(17).prefill(model.params, ids)
    for room, text in ((16, ids), (24, tiny.ids(17).numpy())):
        logits, _ = model.cache(room).prefill(model.params, text)
        want = model(text, use_cache=False).logits[:, -1]
        assert_close(logits, want, reduction=tiny.TEXT["intermediate_size"])


def test_code_that_loses_the_text_is_refused():
    """Phi-4-multimodal drops its cache and goes on with the last token alone."""
    plain = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4)
    vision = t.Phi4MultimodalVisionConfig(**plain, image_size=32, crop_size=32, patch_size=8)
    audio = t.Phi4MultimodalAudioConfig(
        hidden_size=32, intermediate_size=48, num_blocks=1, num_attention_heads=4
    )
    special = dict(vocab_size=96, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    extra = dict(vision_config=vision, audio_config=audio, max_position_embeddings=64, **special)
    model = anyjax.from_torch(build("Phi4Multimodal", **extra))
    ids = prompts()[0].numpy()
    with pytest.raises(Unsupported, match="grows beyond 16 tokens"):
        anyjax.generate(model, ids, **OPTIONS)
    assert anyjax.generate(model, ids, **OPTIONS | {"max_new_tokens": 6}).shape == (2, 16)
