"""Speech to text: transformers' own preparation around the decoding loop, token for token."""

import functools

import jax
import numpy as np
import pytest
import torch
import transformers
from transformers import GenerationConfig, Speech2TextConfig

import anyjax
from anyjax.errors import MissingRng, Unsupported, WrongArguments
from tests.hf.generation.outputs import assert_same_output
from tests.models import tiny
from tests.sampling import further

pytestmark = pytest.mark.sample(every=10)

SUPPRESSED = [5, 6, 7, 90]
LANGUAGES = {"<|en|>": 80, "<|de|>": 81, "<|fr|>": 82}


@functools.cache
def built(multilingual=True):
    """(torch module, Model), with a generation config as Whisper's checkpoints have it."""
    module = tiny.build("whisper")[0]
    with torch.no_grad():  # so that tokens depend on the sound and on the place
        module.model.decoder.embed_positions.weight.mul_(4)
        for layer in module.model.decoder.layers:
            layer.encoder_attn.out_proj.weight.mul_(8)
    own = dict(
        decoder_start_token_id=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=3,
        no_timestamps_token_id=85,
        max_length=24,
        suppress_tokens=SUPPRESSED,
        begin_suppress_tokens=[3, 8],
        is_multilingual=multilingual,
    )
    if multilingual:
        own |= dict(lang_to_id=LANGUAGES, task_to_id={"transcribe": 83, "translate": 84})
    module.generation_config = GenerationConfig(**own)
    return module, anyjax.from_torch(module)


def assert_same(multilingual=True, frames=40, **options):
    """Returns both transcriptions."""
    module, model = built(multilingual)
    sound = 3 * tiny.noise(3, 16, frames)
    mask = {} if frames <= 40 else {"attention_mask": torch.ones(3, frames, dtype=torch.long)}
    want = module.generate(sound, **options, **mask)
    mask = {k: v.numpy() for k, v in mask.items()}
    got = anyjax.generate(model, input_features=sound.numpy(), **options, **mask)
    assert_same_output(got, want)
    return got, want


@pytest.mark.parametrize(
    "options",
    [
        {"language": "en", "task": "transcribe"},
        {"language": ["de", "en", "french"], "task": "translate"},
        {"language": "en", "num_beams": 2},
        {"language": "de", "prompt_ids": torch.tensor([9, 11, 12])},
    ],
    ids=str,
)
def test_language_and_task(options):
    assert_same(**options)


def test_the_language_is_detected():
    assert_same()


def test_one_language_alone():
    got, _ = assert_same(multilingual=False)
    assert len(np.unique(np.asarray(got), axis=0)) == 3 and len(np.unique(got)) > 4


def test_forced_ids_of_older_checkpoints():
    own = built()[0].generation_config.to_dict()
    free, _ = assert_same(max_new_tokens=5)
    own |= {"forced_decoder_ids": [[1, 81], [2, 84]]}
    forced, _ = assert_same(max_new_tokens=5, generation_config=GenerationConfig(**own))
    assert (np.asarray(forced) != np.asarray(free)).any()


def test_suppressed_tokens_do_not_come():
    got, _ = assert_same(language="en", max_new_tokens=15)
    most = np.unique(got)[:20].tolist()
    own = built()[0].generation_config.to_dict() | {"suppress_tokens": most}
    other, _ = assert_same(
        language="en", max_new_tokens=15, generation_config=GenerationConfig(**own)
    )
    assert not np.isin(got, SUPPRESSED).any() and not np.isin(other, most).any()


def test_timestamps_and_long_sounds():
    assert_same(language="en", return_timestamps=True)
    assert_same(language="en", return_timestamps=True, frames=70)


def test_scores():
    asked = {"return_dict_in_generate": True, "output_scores": True}
    got, _ = assert_same(language="en", max_new_tokens=4, **asked)
    assert "scores" in got


def test_temperature_draws_with_the_key():
    _, model = built()
    sound = tiny.noise(1, 16, 40).numpy()
    draw = lambda seed: np.asarray(
        anyjax.generate(
            model,
            input_features=sound,
            language="en",
            temperature=3.0,
            max_new_tokens=12,
            rng=jax.random.key(seed),
        )
    ).tolist()
    assert draw(1) == draw(1) != draw(2)
    with pytest.raises(MissingRng):
        anyjax.generate(model, input_features=sound, language="en", temperature=1.0)


def test_what_is_not_served():
    _, model = built()
    sound = tiny.noise(1, 16, 40).numpy()
    for name, value in {"return_token_timestamps": True, "no_speech_threshold": 0.5}.items():
        with pytest.raises(Unsupported, match=name):
            anyjax.generate(model, input_features=sound, language="en", **{name: value})
    with pytest.raises(Unsupported, match="unheard_of"):
        anyjax.generate(model, input_features=sound, language="en", unheard_of=1)
    with pytest.raises(WrongArguments, match="Unsupported language"):
        anyjax.generate(model, input_features=sound, language="xx")


@functools.cache
def translator():
    """(torch module, Model) of a speech model without a way of generating of its own."""
    torch.manual_seed(0)
    own = tiny.SEQ2SEQ | dict(
        input_feat_per_channel=16,
        num_conv_layers=2,
        conv_channels=32,
        conv_kernel_sizes=(3, 3),
        max_source_positions=60,
        max_target_positions=40,
    )
    del own["max_position_embeddings"]
    module = transformers.Speech2TextForConditionalGeneration(Speech2TextConfig(**own)).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.15 * torch.randn(parameter.shape))
    return module, anyjax.from_torch(module)


@pytest.mark.parametrize(
    "options", [{}, *further({"num_beams": 3}, {"forced_bos_token_id": 7})], ids=str
)
def test_speech_to_text(options):
    module, model = translator()
    sound, mask = 3 * tiny.noise(2, 40, 16), torch.ones(2, 40, dtype=torch.long)
    mask[1, 25:] = 0
    options = options | {"max_new_tokens": 12, "do_sample": False, "eos_token_id": -1}
    for given in ({}, {"attention_mask": mask}):
        want = module.generate(input_features=sound, **given, **options).numpy()
        given = {k: v.numpy() for k, v in given.items()}
        got = anyjax.generate(model, input_features=sound.numpy(), **given, **options)
        np.testing.assert_array_equal(got, want)


@pytest.mark.conformance
def test_a_loop_over_speech():
    """With ``model.cache``, for Whisper with the tokens that its own generate begins with."""
    _, model = translator()
    sound = 3 * tiny.noise(2, 40, 16).numpy()
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": -1}
    want = anyjax.generate(model, input_features=sound, **options)
    np.testing.assert_array_equal(_loop(model, sound, 6), want[:, 1:])
    _, model = built()
    sound = 3 * tiny.noise(2, 16, 40).numpy()
    free = {"suppress_tokens": None, "begin_suppress_tokens": None, "eos_token_id": -1}
    own = GenerationConfig(**built()[0].generation_config.to_dict() | free)
    asked = {"language": "en", "task": "transcribe", "generation_config": own}
    want = np.asarray(anyjax.generate(model, input_features=sound, **asked))
    begin = np.array([[2, 80, 83, 85]] * 2)
    got = _loop(model, sound, 6, decoder_input_ids=begin)
    np.testing.assert_array_equal(got, want[:, :6])


def _loop(model, sound, count, **given):
    @jax.jit
    def run(params, sound):
        def step(carry, _):
            logits, cache = carry
            token = logits.argmax(-1)
            return cache.step(params, token), token

        begun = model.cache(16).prefill(params, sound, **given)
        return jax.lax.scan(step, begun, length=count)[1].T

    return run(model.params, sound)


@pytest.mark.conformance
def test_drafts():
    _, model = built()
    noise = lambda i, x: x + 0.01 * jax.random.normal(jax.random.key(i), x.shape)
    draft = model.with_params({k: noise(i, x) for i, (k, x) in enumerate(model.params.items())})
    sound = 3 * tiny.noise(1, 16, 40).numpy()
    want = anyjax.generate(model, input_features=sound, language="en")
    got = anyjax.generate(model, input_features=sound, language="en", assistant_model=draft)
    np.testing.assert_array_equal(got, want)
