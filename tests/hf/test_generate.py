"""Greedy decoding: token for token what transformers gives; the rest is refused by name."""

import jax
import numpy as np
import pytest
import torch

import tojax
from tests.hf import tiny
from tojax.errors import Unsupported, WrongArguments
from tojax.hf import _generate

DECODERS = ["gpt2", "llama", "mistral", "qwen3", "gemma", "gemma2", "phi", "phi3", "opt", "mixtral"]


def padded():
    """Three prompts of different lengths, left-padded with 0."""
    ids, mask = tiny.ids(9, 3), torch.ones(3, 9, dtype=torch.long)
    for row, count in ((1, 2), (2, 5)):
        ids[row, :count], mask[row, :count] = 0, 0
    return ids, mask


@pytest.mark.parametrize("name", DECODERS)
def test_greedy_equals_transformers(name):
    module, _ = tiny.build(name)
    module.generation_config.pad_token_id = 0
    model = tojax.from_torch(module)
    for ids, mask in ((tiny.ids(7, 1), torch.ones(1, 7, dtype=torch.long)), padded()):
        want = module.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False).numpy()
        got = tojax.generate(model, ids.numpy(), mask.numpy(), max_new_tokens=12)
        np.testing.assert_array_equal(got, want)


def test_rows_end_at_their_end_token():
    module, _ = tiny.build("llama")
    ids = tiny.ids(7, 4)
    free = module.generate(ids, max_new_tokens=10, do_sample=False, eos_token_id=-1)
    ends = [int(free[0, 9]), int(free[1, 12])]
    want = module.generate(
        ids, max_new_tokens=10, do_sample=False, eos_token_id=ends, pad_token_id=0
    ).numpy()
    got = tojax.generate(
        tojax.from_torch(module), ids.numpy(), max_new_tokens=10, eos_token_id=ends, pad_token_id=0
    )
    np.testing.assert_array_equal(got, want)


def test_a_streamer_gets_every_token_in_order():
    class Streamer:
        def __init__(self):
            self.seen, self.ended = [], False

        def put(self, value):
            self.seen.append(value.reshape(-1))

        def end(self):
            self.ended = True

    module, _ = tiny.build("llama")
    model, ids, streamer = tojax.from_torch(module), tiny.ids(7, 1).numpy(), Streamer()
    got = tojax.generate(model, ids, max_new_tokens=9, streamer=streamer, eos_token_id=-1)
    np.testing.assert_array_equal(torch.cat(streamer.seen), got[0])
    assert streamer.ended
    np.testing.assert_array_equal(
        got, tojax.generate(model, ids, max_new_tokens=9, eos_token_id=-1)
    )


def test_new_prompts_and_lengths_do_not_compile_again():
    module, _ = tiny.build("llama")
    model = tojax.from_torch(module)
    tojax.generate(model, tiny.ids(7, 1).numpy(), max_new_tokens=5)
    sizes = _generate._prefill._cache_size(), _generate._decode._cache_size()
    tojax.generate(model, tiny.ids(7, 1).numpy() + 1, max_new_tokens=9, eos_token_id=7)
    assert (_generate._prefill._cache_size(), _generate._decode._cache_size()) == sizes


def test_what_is_not_served_is_refused_before_anything_runs():
    model = tojax.from_torch(tiny.build("llama")[0])
    ids = tiny.ids(7, 1).numpy()
    for options in (
        {"do_sample": True},
        {"num_beams": 4},
        {"repetition_penalty": 1.3},
        {"unheard_of": 1},
    ):
        with pytest.raises(Unsupported, match=next(iter(options))):
            tojax.generate(model, ids, **options)
    for name in ("bert", "t5", "mamba"):
        with pytest.raises(Unsupported):
            tojax.generate(tojax.from_torch(tiny.build(name)[0]), ids)
    with pytest.raises(WrongArguments, match=r"\[batch, length\]"):
        tojax.generate(model, ids[0])


def test_inside_jit_with_params_as_argument():
    module, _ = tiny.build("llama")
    model, ids = tojax.from_torch(module), tiny.ids(7, 1)
    halved = model.with_params(jax.tree.map(lambda x: x * 0.9, model.params))
    got = tojax.generate(halved, ids.numpy(), max_new_tokens=6, eos_token_id=-1)
    want = (
        halved.to_torch().generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=-1).numpy()
    )
    np.testing.assert_array_equal(got, want)
