"""Loops of loaded models: the tokens of the unsaved model."""

import jax
import numpy as np
import pytest

import anyjax
from anyjax.errors import MissingRng, NotNumbers, Unsupported, WrongArguments
from tests.hf.generation.test_generate import built, padded
from tests.models import tiny
from tests.sampling import further

pytestmark = pytest.mark.sample(every=10)

IDS, MASK = (x.numpy() for x in padded())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("saved")


@pytest.fixture(scope="module")
def greedy(folder):
    model = built("llama")[1]
    model.save(folder / "greedy", IDS, attention_mask=MASK, use_cache=False,
               generate=dict(max_new_tokens=12, do_sample=False))  # fmt: skip
    return anyjax.load(folder / "greedy")


SAMPLED = dict(max_new_tokens=8, do_sample=True, temperature=1.2, top_k=20, top_p=0.9)


@pytest.fixture(scope="module")
def sampled(folder):
    model = built("llama")[1]
    model.save(folder / "sampled", IDS, use_cache=False, generate=SAMPLED)
    return anyjax.load(folder / "sampled")


def cut(length, rows=3):
    return {"input_ids": IDS[:rows, -length:], "attention_mask": MASK[:rows, -length:]}


@pytest.mark.parametrize("length, rows", [(9, 3), (4, 3), (1, 3), (9, 1), (5, 2)])
def test_greedy_of_any_prompt_up_to_the_example(greedy, length, rows):
    want = built("llama")[1].generate(**cut(length, rows), max_new_tokens=12, do_sample=False)
    got = greedy.generate(**cut(length, rows))
    np.testing.assert_array_equal(got, want)


def test_fewer_tokens_and_the_mask_of_the_padding_token(greedy):
    options = dict(max_new_tokens=5, do_sample=False)
    want = built("llama")[1].generate(IDS, **options)
    np.testing.assert_array_equal(greedy.generate(IDS, **options), want)
    np.testing.assert_array_equal(greedy.generate(IDS, max_new_tokens=0), IDS)


def test_rows_that_nobody_asked_for_do_not_lengthen_the_text(folder):
    """They draw tokens of their own, and may end later."""
    model = built("llama")[1]
    free = np.asarray(model.generate(IDS, **SAMPLED, rng=jax.random.key(1), eos_token_id=-1))
    options = SAMPLED | dict(eos_token_id=int(free[0, 10]), pad_token_id=0)
    model.save(folder / "rows", IDS, use_cache=False, generate=options)
    loaded = anyjax.load(folder / "rows")
    given = cut(9, 1) | {"rng": jax.random.key(1)}
    want = model.generate(**given, **options)
    assert want.shape[1] < 9 + 8
    np.testing.assert_array_equal(
        loaded.generate(**given, eos_token_id=options["eos_token_id"]), want
    )


@pytest.mark.parametrize("length, seed", [(9, 0), (3, 1)])
def test_the_same_key_draws_the_same_tokens(sampled, length, seed):
    key = jax.random.key(seed)
    want = built("llama")[1].generate(**cut(length), **SAMPLED, rng=key)
    np.testing.assert_array_equal(sampled.generate(**cut(length), rng=key), want)
    np.testing.assert_array_equal(
        sampled.generate(**cut(length, 2), rng=key),
        built("llama")[1].generate(**cut(length, 2), **SAMPLED, rng=key),
    )
    other = sampled.generate(**cut(length), rng=jax.random.key(seed + 7))
    assert not np.array_equal(other, want)


def test_end_tokens(folder):
    model = built("llama")[1]
    free = np.asarray(model.generate(IDS, max_new_tokens=10, do_sample=False, eos_token_id=-1))
    options = dict(max_new_tokens=10, do_sample=False, pad_token_id=0)
    options |= dict(eos_token_id=[int(free[0, 11]), int(free[1, 14])], min_new_tokens=2)
    model.save(folder / "ends", IDS, use_cache=False, generate=options)
    loaded = anyjax.load(folder / "ends")
    for length in (9, 6):
        want = np.asarray(model.generate(**cut(length), **options))
        assert length < 9 or (want[:, 12:] == 0).any()
        np.testing.assert_array_equal(loaded.generate(**cut(length)), want)


def test_numbers_that_move_with_the_prompt(folder):
    """The least length and the forced end are counted from the prompt."""
    model = built("llama")[1]
    options = dict(max_new_tokens=9, do_sample=False, eos_token_id=[3, 4, 5, 6], pad_token_id=0)
    options |= dict(min_new_tokens=4, forced_eos_token_id=6, repetition_penalty=1.4)
    options |= dict(exponential_decay_length_penalty=(2, 3.0))
    model.save(folder / "moving", IDS, use_cache=False, generate=options)
    loaded = anyjax.load(folder / "moving")
    for length in (9, 1):
        want = model.generate(**cut(length), **options)
        np.testing.assert_array_equal(loaded.generate(**cut(length)), want)


def test_a_greatest_length(folder):
    model = built("llama")[1]
    options = dict(max_length=16, do_sample=False, eos_token_id=-1)
    model.save(folder / "most", IDS, use_cache=False, generate=options)
    loaded = anyjax.load(folder / "most")
    for length in (9, 4):
        want = model.generate(**cut(length), **options)
        assert want.shape[1] == 16
        np.testing.assert_array_equal(loaded.generate(**cut(length)), want)
    with pytest.raises(WrongArguments, match="max_new_tokens=3 for a loaded model"):
        loaded.generate(IDS, max_new_tokens=3)


@pytest.mark.parametrize("name", ["gpt2", *further("gemma2", "mistral", "qwen3", "opt")])
def test_other_families(folder, name):
    model = built(name)[1]
    options = dict(max_new_tokens=10, do_sample=False)
    model.save(folder / name, IDS, attention_mask=MASK, use_cache=False, generate=options)
    loaded = anyjax.load(folder / name)
    for length in (9, 4):
        np.testing.assert_array_equal(
            loaded.generate(**cut(length)), model.generate(**cut(length), **options)
        )


def test_a_recurrent_state_takes_prompts_of_one_length(folder):
    model, ids = built("mamba")[1], tiny.ids(7, 2).numpy()
    options = dict(max_new_tokens=6, do_sample=False)
    model.save(folder / "mamba", ids, use_cache=False, generate=options)
    loaded = anyjax.load(folder / "mamba")
    np.testing.assert_array_equal(loaded.generate(ids), model.generate(ids, **options))
    with pytest.raises(WrongArguments, match="2 rows of 7 tokens"):
        loaded.generate(ids[:, 1:])


@pytest.mark.conformance
def test_several_answers(folder):
    model = built("llama")[1]
    options = SAMPLED | dict(num_return_sequences=2)
    model.save(folder / "answers", IDS, use_cache=False, generate=options)
    key = jax.random.key(4)
    want = model.generate(**cut(6), **options, rng=key)
    got = anyjax.load(folder / "answers").generate(**cut(6), rng=key)
    assert got.shape[0] == 6
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "options, said",
    [
        (dict(max_new_tokens=13), "max_new_tokens=13"),
        (dict(max_new_tokens=2.5), "max_new_tokens=2.5"),
        (dict(do_sample=True), "do_sample=True"),
        (dict(top_k=7), "top_k=7"),
        (dict(num_beams=2), "num_beams=2"),
        (dict(eos_token_id=9), "eos_token_id=9"),
        (dict(pixel_values=np.ones(3)), "pixel_values="),
    ],
)
def test_other_options_are_refused(greedy, options, said):
    with pytest.raises(WrongArguments, match=rf"{said}(?s:.)*max_new_tokens=12, do_sample=False"):
        greedy.generate(IDS, **options)


def test_other_prompts_are_refused(greedy, sampled):
    with pytest.raises(WrongArguments, match="at most 3 rows of at most 9 tokens"):
        greedy.generate(np.ones((3, 10), np.int32))
    with pytest.raises(WrongArguments, match="at most 3 rows of at most 9 tokens"):
        sampled.generate(np.repeat(IDS, 2, 0), rng=jax.random.key(0))
    with pytest.raises(WrongArguments, match=r"prompts are integers of shape"):
        greedy.generate(IDS[0])
    with pytest.raises(WrongArguments, match=r"attention_mask is \[3, 2\]"):
        greedy.generate(IDS, MASK[:, :2])
    with pytest.raises(MissingRng, match="do_sample=True without rng"):
        sampled.generate(IDS)
    with pytest.raises(WrongArguments, match="rng is a key of"):
        sampled.generate(IDS, rng=jax.random.key(0, impl="rbg"))
    with pytest.raises(WrongArguments, match="input_ids is traced"):
        jax.jit(greedy.generate)(IDS)
    with pytest.raises(Unsupported, match="a streamer for a loaded model"):
        greedy.generate(IDS, streamer=object())


def test_tokens_outside_of_the_vocabulary(greedy):
    with pytest.raises(NotNumbers, match="behind the prompt"):
        greedy.generate(np.full((3, 4), 10_000, np.int32))


def test_a_model_without_its_loop(tmp_path):
    built("llama")[1].save(tmp_path / "m", IDS, use_cache=False)
    with pytest.raises(Unsupported, match="was saved without its decoding loop"):
        anyjax.load(tmp_path / "m").generate(IDS)


def test_a_loaded_model_is_saved_with_its_loop(greedy, tmp_path):
    greedy.save(tmp_path / "m", IDS, attention_mask=MASK, use_cache=False)
    again = anyjax.load(tmp_path / "m")
    np.testing.assert_array_equal(again.generate(IDS, MASK), greedy.generate(IDS, MASK))
    with pytest.raises(Unsupported, match="generates no text"):
        greedy.save(tmp_path / "m", IDS, generate=dict(max_new_tokens=3))


@pytest.mark.parametrize("options", [dict(max_new_tokens=12, do_sample=False), *further(SAMPLED)])
def test_any_number_of_prompts(folder, options):
    model = built("llama")[1]
    shapes = dict.fromkeys(("input_ids", "attention_mask"), "batch, length")
    call = dict(attention_mask=MASK, use_cache=False, shapes=shapes)
    model.save(folder / "any", IDS, **call, generate=options)
    loaded = anyjax.load(folder / "any")
    rng = {"rng": jax.random.key(5)} if options["do_sample"] else {}
    many = {k: np.concatenate([v, v[::-1]])[:5] for k, v in cut(6).items()}
    for given in (cut(9), cut(4, 1), many):
        want = model.generate(**given, **options, **rng)
        np.testing.assert_array_equal(loaded.generate(**given, **rng), want)
    assert loaded(IDS[:2], attention_mask=MASK[:2], use_cache=False).logits.shape[:2] == (2, 9)
    with pytest.raises(WrongArguments, match="any number of rows of at most 9 tokens"):
        loaded.generate(np.ones((3, 10), np.int32))
