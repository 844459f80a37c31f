"""Drafted tokens: the text is the one without drafts, and the large model is called less often."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from anyjax.hf.generation.job import run
from tests.hf.generation.test_generate import built, padded
from tests.models import tiny
from tests.sampling import further

pytestmark = pytest.mark.sample(every=10)

FREE = {"max_new_tokens": 12, "eos_token_id": -1, "do_sample": False}


def near(name):
    """A model that picks the same tokens mostly."""
    _, model = built(name)
    noise = lambda i, x: x + 0.02 * jax.random.normal(jax.random.key(i), x.shape)
    return model.with_params({k: noise(i, x) for i, (k, x) in enumerate(model.params.items())})


@pytest.fixture
def steps(monkeypatch):
    """How often each call ran the model after the prompt; None where nothing was drafted."""
    seen, result = [], run.output

    def count(job, carry):
        seen.append(int(carry["blocks"]) if "blocks" in carry else None)
        return result(job, carry)

    monkeypatch.setattr(run, "output", count)
    return seen


@pytest.mark.parametrize("name", ["llama", "t5", *further("gpt2", "mistral", "gemma2", "opt")])
def test_greedy_equals_transformers(name, steps):
    module, model = built(name)
    ids, draft = tiny.ids(9, 1), near(name)
    helper = tiny.build(name)[0]
    with torch.no_grad():
        for key, value in helper.named_parameters():
            value.copy_(torch.from_numpy(np.array(draft.params[key])))
    want = module.generate(ids, assistant_model=helper, **FREE).numpy()
    got = anyjax.generate(model, ids.numpy(), assistant_model=draft, **FREE)
    np.testing.assert_array_equal(got, want)
    assert 2 <= steps[-1] <= 11


@pytest.mark.parametrize("name", ["llama", *further("gpt2", "bart")])
def test_several_prompts(name, steps):
    """Padded, and with ends at different places."""
    ids, mask = (x.numpy() for x in padded())
    if name == "bart":
        ids, mask = tiny.ids(9, 3).numpy(), None
    _, model = built(name)
    free = np.asarray(anyjax.generate(model, ids, mask, **FREE))
    ends = {"eos_token_id": [int(free[0, -6]), int(free[1, -9])], "pad_token_id": 0}
    for options in (FREE, FREE | ends):
        want = anyjax.generate(model, ids, mask, **options)
        for how in ({"assistant_model": near(name)}, {"prompt_lookup_num_tokens": 3}):
            got = anyjax.generate(model, ids, mask, **how, **options)
            np.testing.assert_array_equal(got, want)
            assert steps[-1] is not None


def test_fewer_calls_than_tokens(steps):
    _, model = built("llama")
    ids = tiny.ids(9, 2).numpy()
    for count, wanted in ((5, 2), (2, 4), (1, 6)):  # 11 tokens after the first, count + 1 a step
        options = FREE | {"num_assistant_tokens": count, "assistant_confidence_threshold": 0.0}
        anyjax.generate(model, ids, assistant_model=model, **options)
        assert steps[-1] == wanted
    anyjax.generate(model, ids, assistant_model=model, assistant_confidence_threshold=1.1, **FREE)
    assert steps[-1] == 6  # never sure: one token each


def test_what_was_written_before_is_looked_up(steps):
    module, model = built("llama")
    with torch.no_grad():
        ids = module.generate(tiny.ids(9, 1), max_new_tokens=40, do_sample=False, eos_token_id=-1)
    ids = ids[:, :]
    options = FREE | {"prompt_lookup_num_tokens": 4}
    want = module.generate(ids, **options).numpy()
    np.testing.assert_array_equal(anyjax.generate(model, ids.numpy(), **options), want)
    repeats = len(np.unique(want[0, -14:])) < 10
    assert steps[-1] < 11 if repeats else steps[-1] == 11


@pytest.mark.conformance
def test_draws_are_those_without_drafts(steps):
    _, model = built("llama")
    ids = tiny.ids(7, 3).numpy()
    drawn = {"do_sample": True, "temperature": 1.5, "top_k": 20, "rng": jax.random.key(3)}
    want = anyjax.generate(model, ids, **FREE | drawn)
    for how in ({"assistant_model": near("llama")}, {"prompt_lookup_num_tokens": 4}):
        got = anyjax.generate(model, ids, **FREE | drawn, **how)
        np.testing.assert_array_equal(got, want)
    options = FREE | drawn | {"num_assistant_tokens": 3, "assistant_confidence_threshold": 0.0}
    anyjax.generate(model, ids[:1], assistant_model=near("llama"), **options)
    assert steps[-1] < 9
    anyjax.generate(model, ids, assistant_model=model, **options)
    assert steps[-1] == 3


def test_processors_scores_and_streams():
    _, model = built("llama")
    ids, draft = tiny.ids(7, 1).numpy(), near("llama")
    options = FREE | {"repetition_penalty": 1.6, "no_repeat_ngram_size": 2}
    asked = options | {"return_dict_in_generate": True, "output_scores": True}
    want = anyjax.generate(model, ids, **asked)
    got = anyjax.generate(model, ids, assistant_model=draft, **asked)
    np.testing.assert_array_equal(got.sequences, want.sequences)
    for mine, plain in zip(got.scores, want.scores, strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-4)

    class Streamer:
        seen: list = []

        def put(self, value):
            self.seen.append(value.reshape(1, -1))

        def end(self):
            self.seen.append(torch.zeros(1, 0))

    anyjax.generate(model, ids, assistant_model=draft, streamer=Streamer(), **options)
    np.testing.assert_array_equal(torch.cat(Streamer.seen, 1), want.sequences)


def test_what_cannot_be_drafted_is_refused():
    _, model = built("llama")
    ids = tiny.ids(7, 1).numpy()
    refused = {"num_beams": 2}, {"guidance_scale": 2.0}, {"use_cache": False}
    for options in refused:
        name = next(iter(options))
        with pytest.raises(Unsupported, match=f"assistant_model together with {name}"):
            anyjax.generate(model, ids, assistant_model=model, **options)
    with pytest.raises(Unsupported, match="prompt_lookup_num_tokens together with num_beams"):
        anyjax.generate(model, ids, prompt_lookup_num_tokens=3, num_beams=2)
    with pytest.raises(Unsupported, match="an encoder on one side"):
        anyjax.generate(model, ids, assistant_model=built("t5")[1])
    with pytest.raises(WrongArguments, match="is a LlamaForCausalLM"):
        anyjax.generate(model, ids, assistant_model=built("llama")[0])
    with pytest.raises(Unsupported, match="generates no text"):
        anyjax.generate(model, ids, assistant_model=anyjax.from_torch(tiny.build("vit")[0]))
    with pytest.raises(WrongArguments, match="drafts of 0"):
        anyjax.generate(model, ids, prompt_lookup_num_tokens=0)
    for options in ({"assistant_ensemble_weight": 0.5}, {"assistant_tokenizer": object()}):
        with pytest.raises(Unsupported, match=next(iter(options))):
            anyjax.generate(model, ids, assistant_model=model, **options)
    state = built("mamba")[1]
    for large, small in ((state, model), (model, state)):
        with pytest.raises(Unsupported, match="drafts with MambaForCausalLM"):
            anyjax.generate(large, ids, assistant_model=small)
    small = tiny.FAMILIES["llama"]()[1]
    small.vocab_size = 90
    other = anyjax.from_torch(type(built("llama")[0])(small).eval())
    with pytest.raises(WrongArguments, match="90 tokens"):
        anyjax.generate(model, ids, assistant_model=other)
