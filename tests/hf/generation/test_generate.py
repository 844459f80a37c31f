"""Generation: token for token what transformers gives; what is not served is refused by name."""

import functools

import jax
import numpy as np
import pytest
import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.generation.stopping_criteria import (
    EosTokenCriteria,
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteriaList,
    StopStringCriteria,
)

import anyjax
from anyjax.errors import MissingRng, SlowGeneration, Unsupported, WrongArguments
from anyjax.hf.generation.decode import programs
from anyjax.hf.generation.job.strategy import Decoding
from tests.hf.generation.outputs import assert_same_output
from tests.models import tiny
from tests.sampling import further

pytestmark = pytest.mark.sample(every=10)

DECODERS = ["gpt2", "llama", "gemma2", "phi", "mixtral"]
DECODERS += further("mistral", "qwen3", "phi3", "opt")
STATES = ["mamba", "rwkv"]
SEQ2SEQ = ["t5", "bart"]


@functools.cache
def built(name):
    """(torch module, Model) with a padding token."""
    module = tiny.build(name)[0]
    module.generation_config.pad_token_id = 0
    return module, anyjax.from_torch(module)


def padded():
    """Three prompts of different lengths, left-padded with 0."""
    ids, mask = tiny.ids(9, 3), torch.ones(3, 9, dtype=torch.long)
    for row, count in ((1, 2), (2, 5)):
        ids[row, :count], mask[row, :count] = 0, 0
    return ids, mask


def assert_same(name, ids, **options):
    """Returns both outputs for the same options."""
    module, model = built(name)
    options = ({} if "generation_config" in options else {"max_new_tokens": 12}) | options
    arrays = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    want = module.generate(ids, **{"do_sample": False} | options)
    got = anyjax.generate(model, ids.numpy(), **{"do_sample": False} | arrays)
    assert_same_output(got, want)
    return got, want


@pytest.mark.parametrize("name", DECODERS)
def test_greedy_equals_transformers(name):
    ids, mask = padded()
    assert_same(name, ids, attention_mask=mask)
    assert_same(name, tiny.ids(7, 1))


@pytest.mark.parametrize("name", STATES)
def test_states_without_positions(name):
    assert_same(name, tiny.ids(7, 2))


@pytest.mark.parametrize("name", SEQ2SEQ)
def test_encoder_decoder(name):
    ids = tiny.ids(9, 3)
    mask = torch.ones_like(ids)
    mask[1, -3:] = 0
    assert_same(name, ids, attention_mask=mask)


def test_without_a_cache_the_text_runs_again():
    ids, mask = padded()
    assert_same("llama", ids, attention_mask=mask, use_cache=False)


def test_rows_end_at_their_end_token():
    module, _ = built("llama")
    ids = tiny.ids(7, 4)
    free = module.generate(ids, max_new_tokens=10, do_sample=False, eos_token_id=-1)
    ends = [int(free[0, 9]), int(free[1, 12])]
    assert_same("llama", ids, max_new_tokens=10, eos_token_id=ends, pad_token_id=0)


PROCESSED = {
    "repetition_penalty": 1.6,
    "no_repeat_ngram_size": 2,
    "bad_words_ids": [[20], [21, 22]],
    "min_new_tokens": 8,
    "suppress_tokens": list(range(10, 30)),
    "forced_eos_token_id": 5,
    "exponential_decay_length_penalty": (2, 1.5),
    "renormalize_logits": True,
    "sequence_bias": {(9,): 4.0},
}


@pytest.mark.parametrize("names", [list(PROCESSED)[:3], list(PROCESSED)[3:]])
def test_processors_in_the_loop(names):
    ids, mask = padded()
    assert_same("llama", ids, attention_mask=mask, **{k: PROCESSED[k] for k in names})


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3},
        {"num_beams": 3, "early_stopping": True, "length_penalty": 2.0, "num_return_sequences": 2},
        {"num_beams": 2, "early_stopping": "never", "length_penalty": 0.5},
    ],
    ids=str,
)
def test_beams_equal_those_of_transformers(options):
    ids, mask = padded()
    module, _ = built("llama")
    free = module.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=-1)
    ends = sorted({int(x) for x in free[:, -3:].flatten()})[:2]
    assert_same("llama", ids, attention_mask=mask, eos_token_id=ends, **options)


def test_beams_of_an_encoder_decoder():
    assert_same("t5", tiny.ids(9, 2), num_beams=3)


def test_scores_of_every_step():
    asked = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    for options in ({}, {"num_beams": 2}):
        got, _ = assert_same("llama", tiny.ids(7, 2), max_new_tokens=5, **asked, **options)
        assert {"scores", "logits"} < set(got)


def test_a_streamer_gets_every_token_in_order():
    class Streamer:
        def __init__(self):
            self.seen, self.ended = [], False

        def put(self, value):
            self.seen.append(value.reshape(2, -1))

        def end(self):
            self.ended = True

    _, model = built("llama")
    ids, streamer = tiny.ids(7, 2).numpy(), Streamer()
    got = anyjax.generate(model, ids, max_new_tokens=9, streamer=streamer, eos_token_id=-1)
    np.testing.assert_array_equal(torch.cat(streamer.seen, 1), got)
    assert streamer.ended


def test_sampling_follows_the_key_and_the_warpers():
    _, model = built("llama")
    ids = tiny.ids(7, 1).numpy()
    draw = lambda seed, **options: np.asarray(
        anyjax.generate(model, ids, do_sample=True, rng=jax.random.key(seed), **options)
    )
    np.testing.assert_array_equal(draw(1), draw(1))
    assert (draw(1) != draw(2)).any()
    greedy = anyjax.generate(model, ids, do_sample=False)
    np.testing.assert_array_equal(draw(3, top_k=1), greedy)
    many = draw(1, num_return_sequences=5, temperature=3.0)
    assert len(many) == 5 and len(np.unique(many, axis=0)) > 1
    with pytest.raises(MissingRng, match="do_sample"):
        anyjax.generate(model, ids, do_sample=True)


def known(model):
    """Returns the ways of decoding that were tried, and whether they are exact."""
    notes = {k[0]: v for k, v in model.source.cache.notes.items() if isinstance(k, tuple)}
    return {
        k: v
        for k, v in notes.items()
        if k in (Decoding.PADDED, Decoding.CACHED, Decoding.RECOMPUTED)
    }


def test_new_prompts_and_options_do_not_compile_again():
    _, model = built("llama")
    options = {"min_new_tokens": 2, "eos_token_id": 5}
    sizes = lambda: [p.of(model)._cache_size() for p in (programs.prefill, programs.decode)]
    anyjax.generate(model, tiny.ids(7, 1).numpy(), max_new_tokens=5, **options)
    before = sizes()
    options = {"min_new_tokens": 3, "eos_token_id": 7}
    anyjax.generate(model, tiny.ids(11, 1).numpy() + 1, max_new_tokens=9, **options)
    assert sizes() == before
    anyjax.generate(model, tiny.ids(17, 1).numpy(), max_new_tokens=5, **options)
    assert sizes() == [before[0] + 1, before[1]]


def test_a_padded_prompt_is_used_only_where_nothing_shows_of_it():
    assert_same("mamba", tiny.ids(7, 2))
    assert known(built("mamba")[1]) == {Decoding.PADDED: False, Decoding.CACHED: True}


def test_what_is_not_served_is_refused_before_anything_runs():
    _, model = built("llama")
    ids = tiny.ids(7, 1).numpy()
    asked = {"penalty_alpha": 0.6, "top_k": 4}, {"unheard_of": 1}, {"max_time": 1.0}
    for options in (*asked, {"guidance_scale": 2.0, "num_beams": 2}):
        with pytest.raises(Unsupported, match=next(iter(options))):
            anyjax.generate(model, ids, **options)
    key, near = jax.random.key(0), {"max_tokens": "max_new_tokens"}
    for name, value in {"key": key, "draws": key, "seed": 3, "max_tokens": 3}.items():
        with pytest.raises(Unsupported, match=f"{name}'.*\n.*\n.*mean {near.get(name, 'rng')}"):
            anyjax.generate(model, ids, **{name: value})
    with pytest.raises(Unsupported, match="generates no text"):
        anyjax.generate(anyjax.from_torch(tiny.build("vit")[0]), ids)
    own = tiny.build("llama")[0]
    own.__class__ = type("Own", (type(own),), {"generate": lambda self: None})
    with pytest.raises(Unsupported, match="of its own"):
        anyjax.generate(anyjax.from_torch(own), ids)
    with pytest.raises(WrongArguments, match=r"\[batch, length\]"):
        anyjax.generate(model, ids[0])
    with pytest.raises(WrongArguments, match="tokenizer"):
        anyjax.generate(model, ids, stop_strings=["a"])
    for criteria in (MaxTimeCriteria(9.0), lambda ids, scores: False):
        with pytest.raises(Unsupported, match=r"the stopping criteria (Max|function)"):
            anyjax.generate(model, ids, stopping_criteria=[criteria])


@pytest.mark.parametrize("around", [jax.jit, jax.vmap])
@pytest.mark.parametrize("traced", ["params", "input_ids"])
def test_a_traced_call_is_refused(around, traced):
    model, ids = built("llama")[1], tiny.ids(7, 2).numpy()
    by = {
        "params": lambda params: anyjax.generate(model.with_params(params), ids),
        "input_ids": lambda ids: anyjax.generate(model, ids),
    }[traced]
    given = jax.tree.map(lambda x: x[None], model.params) if traced == "params" else ids[None]
    with pytest.raises(WrongArguments, match=f"^{traced} is traced"):
        around(by)(given)


def test_other_params():
    _, model = built("llama")
    ids = tiny.ids(7, 1)
    halved = model.with_params(jax.tree.map(lambda x: x * 0.9, model.params))
    got = anyjax.generate(halved, ids.numpy(), max_new_tokens=6, eos_token_id=-1)
    want = halved.to_torch().generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=-1)
    np.testing.assert_array_equal(got, want.numpy())
    model.to_torch()


def test_a_generation_config_holds_options():
    ids, mask = padded()
    config = GenerationConfig(max_new_tokens=7, repetition_penalty=1.6, num_beams=2, pad_token_id=0)
    got, _ = assert_same("llama", ids, attention_mask=mask, generation_config=config)
    free, _ = assert_same("llama", ids, attention_mask=mask)
    assert got.shape[1] <= ids.shape[1] + 7 < free.shape[1]


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_guidance(name):
    ids, mask = padded()
    free, _ = assert_same(name, ids, attention_mask=mask, eos_token_id=-1)
    got, _ = assert_same(name, ids, attention_mask=mask, guidance_scale=3.0, eos_token_id=-1)
    assert (np.asarray(got) != np.asarray(free)).any()
    long = {"negative_prompt_ids": tiny.ids(11, 3) - 1, "guidance_scale": 3.0, "top_k": 50}
    against, _ = assert_same(name, ids, attention_mask=mask, eos_token_id=-1, **long)
    assert (np.asarray(got) != np.asarray(against)).any()


def test_chats_are_streamed(capsys):
    from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer

    folder = "examples/tiny-llama"
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"
    module = AutoModelForCausalLM.from_pretrained(folder)
    model, options = anyjax.from_torch(module), dict(max_new_tokens=9, do_sample=False)
    chats = [[{"role": "user", "content": text}] for text in ("Hello", "Print a list")]
    asked = dict(padding=True, return_dict=True)
    prompts = tokenizer.apply_chat_template(chats, return_tensors="np", **asked)
    torched = tokenizer.apply_chat_template(chats, return_tensors="pt", **asked)
    got = anyjax.generate(model, **prompts, **options)
    np.testing.assert_array_equal(got, module.generate(**torched, **options).numpy())
    one = {k: v[1:] for k, v in prompts.items()}
    capsys.readouterr()
    streamer = TextStreamer(tokenizer, skip_prompt=True)
    ids = anyjax.generate(model, **one, streamer=streamer, **options)
    new = tokenizer.decode(ids[0, one["input_ids"].shape[1] :].tolist())
    assert capsys.readouterr().out.strip() == new.strip() != ""


def test_stop_strings():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = "examples/tiny-llama"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    module = AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer("The ", return_tensors="pt").input_ids
    free = module.generate(ids, max_new_tokens=20, do_sample=False)
    text = tokenizer.decode(free[0, ids.shape[1] :])
    options = dict(max_new_tokens=20, do_sample=False, stop_strings=[text[6:9]])
    want = module.generate(ids, tokenizer=tokenizer, **options).numpy()
    model = anyjax.from_torch(module)
    got = anyjax.generate(model, ids.numpy(), tokenizer=tokenizer, **options)
    np.testing.assert_array_equal(got, want)
    assert want.shape[1] < free.shape[1]


def test_stopping_criteria_of_transformers():
    """They take the place of the options of their kind."""
    ids, mask = padded()
    free, _ = assert_same("llama", ids, attention_mask=mask, eos_token_id=-1)
    for criteria, length in (
        ([MaxLengthCriteria(14)], 14),
        ([MaxLengthCriteria(17), MaxLengthCriteria(15)], 15),
        ([MaxLengthCriteria(30)], 30),
        ([EosTokenCriteria([int(free[0, 11]), int(free[1, 13])])], None),
    ):
        given = {"stopping_criteria": StoppingCriteriaList(criteria), "attention_mask": mask}
        got, _ = assert_same("llama", ids, eos_token_id=-1, pad_token_id=0, **given)
        assert length is None or got.shape[1] == length
    assert (np.asarray(got[0, 12:]) == 0).all()


def test_rows_without_an_end_token_go_on():
    """What its text ended is not padded where there is no end token, as in transformers."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = "examples/tiny-llama"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    module = AutoModelForCausalLM.from_pretrained(folder)
    module.generation_config.eos_token_id = None
    ids = tokenizer(["The ", "def"], return_tensors="pt", padding=True, padding_side="left")
    free = module.generate(**ids, max_new_tokens=20, do_sample=False, pad_token_id=0)
    text = tokenizer.decode(free[0, ids.input_ids.shape[1] :])
    criteria = StoppingCriteriaList([StopStringCriteria(tokenizer, [text[6:9]])])
    options = dict(max_new_tokens=20, do_sample=False, pad_token_id=0, stopping_criteria=criteria)
    want = module.generate(**ids, **options).numpy()
    arrays = {k: v.numpy() for k, v in ids.items()}
    got = anyjax.generate(anyjax.from_torch(module), **arrays, **options)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("where", ["the prompt", "every step"])
def test_a_model_that_looks_at_values(where):
    """What no program can hold is run op by op: the prompt alone, or all of it."""

    def look(module, args, kwargs):
        ids = kwargs["input_ids"]
        if where == "every step" or ids.shape[1] > 1:
            ids = torch.where(ids == 4, 4 + min(int((ids % 2 == 0).sum()), 1), ids)
            kwargs = kwargs | {"input_ids": ids}
        return args, kwargs

    module = tiny.build("llama")[0]
    module.register_forward_pre_hook(look, with_kwargs=True)
    model, ids = anyjax.from_torch(module), tiny.ids(5, 2)
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": -1, "pad_token_id": 0}
    want = module.generate(ids, **options).numpy()
    with pytest.warns(SlowGeneration, match="op by op"):
        got = anyjax.generate(model, ids.numpy(), **options)
    np.testing.assert_array_equal(got, want)
    wanted = {Decoding.PADDED: False, Decoding.CACHED: where == "the prompt"}
    assert known(model) == wanted | ({Decoding.RECOMPUTED: False} if where == "every step" else {})


def test_a_logits_processor_of_ones_own():
    """It is called with torch tensors of the text so far, in every way of decoding."""

    class Alternating(LogitsProcessor):
        """Tokens after an even one are odd."""

        def __call__(self, input_ids, scores):
            even = torch.arange(scores.shape[1]) % 2 == 0
            scores = scores.masked_fill((input_ids[:, -1:] % 2 == 0) & even, -float("inf"))
            return scores.masked_fill((input_ids[:, -1:] % 2 == 1) & ~even, -float("inf"))

    ids, mask = padded()
    given = {"attention_mask": mask, "logits_processor": LogitsProcessorList([Alternating()])}
    got, _ = assert_same("llama", ids, eos_token_id=-1, **given)
    new = np.asarray(got)[:, ids.shape[1] - 1 :] % 2
    assert (new[:, 1:] != new[:, :-1]).all()
    assert_same("llama", ids, num_beams=2, **given)
    _, model = built("llama")
    given = {"attention_mask": mask.numpy(), "logits_processor": given["logits_processor"]}
    drafted = {"assistant_model": model, "eos_token_id": -1, "do_sample": False}
    text = anyjax.generate(model, ids.numpy(), max_new_tokens=12, **drafted, **given)
    np.testing.assert_array_equal(text, got)


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("by", ["torch", "jax"])
def test_the_output_of_an_encoder_that_ran_before(by, beams):
    module, model = built("bart")
    ids, options = np.array([[5, 6, 7], [8, 9, 4]]), {"max_new_tokens": 4, "num_beams": beams}
    encoder = module.get_encoder()
    encoded = encoder(torch.tensor(ids)) if by == "torch" else anyjax.from_torch(encoder)(ids)
    out = anyjax.generate(model, encoder_outputs=encoded, **options)
    assert_same_output(out, module.generate(torch.tensor(ids), **options))
