"""Numbers of sampling are inputs of the program: exact in value, and nothing is compiled again."""

import contextlib

import jax
import jax.monitoring
import numpy as np
import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import logits_process as theirs

import anyjax
from anyjax.hf.generation.request import logits_processors, warpers
from tests.models import tiny
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=10)

VOCABULARY = 96
# The kind of processor and several of its numbers.
NUMBERS = {
    theirs.TemperatureLogitsWarper: (0.3, 1.7),
    theirs.TopKLogitsWarper: (1, 2, 17, VOCABULARY, 10 * VOCABULARY),
    theirs.TopPLogitsWarper: (0.0, 0.25, 0.5, 0.9, 1.0),
    theirs.TopHLogitsWarper: (0.1, 0.9, 0.99),
    theirs.MinPLogitsWarper: (0.0, 0.1, 1.0),
    theirs.TypicalLogitsWarper: (0.2, 0.95),
    theirs.EpsilonLogitsWarper: (1e-4, 0.3),
    theirs.EtaLogitsWarper: (1e-3, 0.3),
}
KEEPS = {
    theirs.TopKLogitsWarper,
    theirs.TopPLogitsWarper,
    theirs.MinPLogitsWarper,
    theirs.TypicalLogitsWarper,
    theirs.EpsilonLogitsWarper,
    theirs.EtaLogitsWarper,
}
apply = jax.jit(lambda form, scores: form(np.zeros((len(scores), 4), np.int32), 2, scores))


def rows():
    """Scores as they come, equal ones, ruled-out ones, large ones, and ones far apart."""
    noise = 3 * tiny.noise(6, VOCABULARY)
    noise[1] = 0.5
    noise[2] = noise[2].round()
    noise[3, ::3] = -float("inf")
    noise[4] *= 1e4
    noise[5] = -torch.arange(VOCABULARY) * 40.0
    return noise


@pytest.mark.parametrize("keep", [1, 3])
@pytest.mark.parametrize("kind", NUMBERS)
def test_all_numbers_of_a_kind_are_one_program(kind, keep):
    """What is dropped is exact; a division rounds."""
    scores = rows()[[0, 3, 4, 5] if keep == 1 else [0, 3]]
    given = {"min_tokens_to_keep": keep} if kind in KEEPS else {}
    before = None
    for number in NUMBERS[kind]:
        processor = kind(number, **given)
        (form,) = logits_processors.chain([processor], len(scores), None)
        got, want = apply(form, scores.numpy()), processor(None, scores.clone())
        np.testing.assert_array_equal(np.isinf(got), np.isinf(want.numpy()), str(number))
        assert_close(got, want)
        before = before or apply._cache_size()
        assert apply._cache_size() == before


@pytest.mark.parametrize("kind", [k for k in NUMBERS if k is not theirs.TopHLogitsWarper])
def test_of_equal_scores_as_many_are_dropped(kind):
    """Which of them is not told by transformers."""
    scores = rows()[1:3]
    for number in NUMBERS[kind]:
        processor = kind(number)
        (form,) = logits_processors.chain([processor], len(scores), None)
        want = processor(None, scores.clone()).numpy()
        got = apply(form, scores.numpy())
        np.testing.assert_array_equal(np.isinf(got).sum(-1), np.isinf(want).sum(-1), str(number))


@pytest.mark.parametrize("kind", sorted(KEEPS, key=lambda x: x.__name__))
def test_what_is_kept_is_counted(kind):
    """Probabilities that are all rounded to 0 are equal, too."""
    number = 2 if kind is theirs.TopKLogitsWarper else 0.9
    processor = kind(number, min_tokens_to_keep=3)
    scores = rows()[5:]
    (form,) = logits_processors.chain([processor], 1, None)
    assert (apply(form, scores.numpy()) > -np.inf).sum() == 3
    assert (processor(None, scores.clone()) > -np.inf).sum() == 3


def test_the_kth_largest():
    scores = rows().numpy()
    scores[0, :4] = np.inf, -np.inf, 0.0, -0.0
    ordered = -np.sort(-scores, -1)
    find = jax.jit(warpers.kth_largest)
    for k in (1, 2, 5, 64, VOCABULARY):
        np.testing.assert_array_equal(find(scores, np.int32(k))[:, 0], ordered[:, k - 1])
        np.testing.assert_array_equal(warpers.kth_largest(scores, k)[:, 0], ordered[:, k - 1])
    assert find._cache_size() == 1
    scores[1, 3] = np.nan
    assert np.isnan(find(scores, np.int32(1))[1, 0])
    np.testing.assert_array_equal(find(scores, np.int32(4))[1, 0], ordered[1, 2])


@contextlib.contextmanager
def compilations():
    """Names of what JAX compiles inside, as a list that grows."""
    found = []

    def listen(event, duration, **about):
        if event.endswith("backend_compile_duration"):
            found.append(about.get("fun_name", event))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


class Shift(LogitsProcessor):
    """A processor of one's own."""

    def __init__(self, by):
        self.by = by

    def __call__(self, input_ids, scores):
        return scores.roll(self.by, -1)


SAMPLED = {"do_sample": True}
OPTIONS = {
    "temperature": (SAMPLED, [0.5, 0.7, 1.3]),
    "top_k": (SAMPLED, [3, 50, 7]),
    "top_p": (SAMPLED, [0.2, 0.9, 0.95]),
    "top_h": (SAMPLED, [0.2, 0.9]),
    "min_p": (SAMPLED, [0.01, 0.2]),
    "typical_p": (SAMPLED, [0.2, 0.9]),
    "epsilon_cutoff": (SAMPLED, [1e-4, 1e-2]),
    "eta_cutoff": (SAMPLED, [1e-4, 1e-2]),
    "repetition_penalty": ({}, [1.1, 1.5]),
    "encoder_repetition_penalty": ({}, [1.1, 1.5]),
    "exponential_decay_length_penalty": ({"eos_token_id": 5}, [(1, 1.1), (3, 1.7)]),
    "guidance_scale": ({}, [1.5, 3.0]),
    "min_new_tokens": ({"eos_token_id": 5}, [2, 3]),
    "forced_eos_token_id": ({}, [5, 6]),
    "suppress_tokens": ({}, [[3, 4], [7, 8]]),
    "bad_words_ids": ({"eos_token_id": 5}, [[[3], [4, 5]], [[7], [8, 9]]]),
    "sequence_bias": ({}, [{(3,): 1.0, (4, 5): 2.0}, {(7,): 2.0, (8, 9): -1.0}]),
    "length_penalty": ({"num_beams": 2, "eos_token_id": 5}, [0.5, 2.0]),
    "logits_processor": ({}, [LogitsProcessorList([Shift(by)]) for by in (1, 2)]),
}


@pytest.fixture(scope="module")
def model():
    module = tiny.build("llama")[0]
    module.generation_config.pad_token_id = 0
    return anyjax.from_torch(module)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_new_number_compiles_nothing(model, name):
    """Neither does a prompt of another length beside it."""
    given, values = OPTIONS[name]
    first = None
    with compilations() as found:
        for value, length in zip(values, (7, 9, 8)):
            key = {"rng": jax.random.key(3)} if given is SAMPLED else {}
            asked = given | key | {name: value, "max_new_tokens": 4}
            anyjax.generate(model, tiny.ids(length, 2).numpy(), **asked)
            first = len(found) if first is None else first
    assert found[first:] == []
    assert first or name != "temperature"  # which no other case has compiled


def test_a_processor_of_ones_own_is_called_again(model):
    """One program, and in it the processor of this call."""
    ids = tiny.ids(7, 2).numpy()
    write = lambda by: np.asarray(
        anyjax.generate(model, ids, max_new_tokens=3, logits_processor=[Shift(by)])
    )
    want = model.to_torch()
    for by in (3, 5):
        theirs_ = want.generate(
            torch.tensor(ids), max_new_tokens=3, do_sample=False, logits_processor=[Shift(by)]
        )
        np.testing.assert_array_equal(write(by), theirs_.numpy())
