"""Logits that are NaN choose no token: spoilt weights, unknown tokens, texts that are too long."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import NotNumbers
from anyjax.hf.generation.decode import programs
from tests.models import tiny

pytestmark = pytest.mark.sample(every=10)

LIMIT, SIZE = 20, 60
SMALL = dict(vocab_size=SIZE, n_positions=LIMIT)
WAYS = [
    {},
    {"do_sample": True, "rng": jax.random.key(0)},
    {"num_beams": 2},
    {"prompt_lookup_num_tokens": 2},
    {"use_cache": False},
]


def gpt2():
    module = tiny.gpt2(**SMALL, bos_token_id=1, eos_token_id=None)
    module.generation_config.pad_token_id = 0
    return module, anyjax.from_torch(module)


def prompt(length=9, batch=1):
    return np.random.default_rng(0).integers(3, SIZE, (batch, length))


@pytest.mark.filterwarnings("ignore::anyjax.errors.SlowGeneration")  # no way can be trusted
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_spoilt_weights(options):
    model = anyjax.from_torch(tiny.build("llama")[0])
    spoilt = model.with_params(jax.tree.map(lambda x: x * np.nan, model.params))
    with pytest.raises(NotNumbers, match="are NaN"):
        anyjax.generate(spoilt, tiny.ids(7, 1).numpy(), max_new_tokens=3, **options)


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_a_text_that_is_too_long(options):
    """torch raises an IndexError for it."""
    module, model = gpt2()
    options = {"pad_token_id": 0, "eos_token_id": -1} | options
    fits = LIMIT - 9 + 1  # the last token is not looked at
    assert anyjax.generate(model, prompt(), max_new_tokens=fits, **options).shape[1] == LIMIT + 1
    with pytest.raises(NotNumbers, match="after new tokens"):
        anyjax.generate(model, prompt(), max_new_tokens=fits + 1, **options)
    with pytest.raises(IndexError):
        module.generate(torch.tensor(prompt()), max_new_tokens=fits + 1)


def test_a_text_that_is_too_long_is_not_streamed():
    class Seen:
        tokens = ()

        def put(self, value):
            self.tokens += tuple(value.reshape(-1).tolist())

        def end(self):
            raise AssertionError

    _, model = gpt2()
    seen = Seen()
    with pytest.raises(NotNumbers, match="after new tokens"):
        anyjax.generate(model, prompt(), max_new_tokens=15, eos_token_id=-1, streamer=seen)
    assert len(seen.tokens) == LIMIT + 1


def test_prompts_up_to_the_limit_share_a_program():
    """A bucket that went on behind the table would hold NaN."""
    module, model = gpt2()
    for length in (17, 19, LIMIT):
        got = anyjax.generate(model, prompt(length, 2), max_new_tokens=1, eos_token_id=-1)
        want = module.generate(torch.tensor(prompt(length, 2)), max_new_tokens=1, do_sample=False)
        np.testing.assert_array_equal(got, want.numpy())


def test_longer_prompts_share_a_program_where_positions_are_no_table():
    module = tiny.llama(max_position_embeddings=LIMIT)
    model = anyjax.from_torch(module)
    for length in (25, 30):
        ids = prompt(length, 2)
        got = anyjax.generate(model, ids, max_new_tokens=3, eos_token_id=-1, pad_token_id=0)
        want = module.generate(torch.tensor(ids), max_new_tokens=3, eos_token_id=-1, pad_token_id=0)
        np.testing.assert_array_equal(got, want.numpy())
    assert programs.prefill.of(model)._cache_size() == 1


def test_unknown_tokens_in_a_prompt():
    _, model = gpt2()
    ids = prompt()
    ids[0, 3] = SIZE
    with pytest.raises(NotNumbers, match="not in the vocabulary"):
        anyjax.generate(model, ids, max_new_tokens=2)


def test_rows_that_have_ended_may_be_padded_with_any_token():
    _, model = gpt2()
    ids = prompt(9, 2)
    free = np.asarray(anyjax.generate(model, ids, max_new_tokens=5, eos_token_id=-1))
    row = next(i for i in (0, 1) if free[i, 9] not in free[1 - i, 9:])
    ended = anyjax.generate(
        model, ids, max_new_tokens=5, eos_token_id=int(free[row, 9]), pad_token_id=SIZE
    )
    assert (np.asarray(ended)[row, 10:] == SIZE).all()
    np.testing.assert_array_equal(ended[1 - row], free[1 - row])
