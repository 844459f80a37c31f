"""Every logits processor gives the scores that transformers' own gives, on a padded buffer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import GenerationConfig
from transformers.generation import logits_process as theirs

from anyjax.hf.generation.decode.programs import likeliest
from anyjax.hf.generation.request import logits_processors
from tests.models import tiny

pytestmark = pytest.mark.sample(every=10)

LENGTH, TOTAL, VOCABULARY = 12, 24, 96
ENDS = torch.tensor([2, 7])
SOURCE = torch.tensor([[5, 6, 5, 9, 5, 6], [8, 8, 8, 3, 4, 3]])
WATERMARK = dict(vocab_size=VOCABULARY, device="cpu")
CASES = {
    "temperature": lambda: theirs.TemperatureLogitsWarper(0.7),
    "top_k": lambda: theirs.TopKLogitsWarper(5),
    "top_k keeps": lambda: theirs.TopKLogitsWarper(2, min_tokens_to_keep=4),
    "top_p": lambda: theirs.TopPLogitsWarper(0.6),
    "top_h": lambda: theirs.TopHLogitsWarper(0.4),
    "min_p": lambda: theirs.MinPLogitsWarper(0.2),
    "typical_p": lambda: theirs.TypicalLogitsWarper(0.5),
    "epsilon_cutoff": lambda: theirs.EpsilonLogitsWarper(0.02),
    "eta_cutoff": lambda: theirs.EtaLogitsWarper(0.1),
    "repetition_penalty": lambda: theirs.RepetitionPenaltyLogitsProcessor(1.7),
    "repetition_penalty skips": lambda: theirs.RepetitionPenaltyLogitsProcessor(
        1.7, prompt_ignore_length=torch.tensor([0, 4])
    ),
    "encoder_repetition_penalty": lambda: theirs.EncoderRepetitionPenaltyLogitsProcessor(
        1.7, SOURCE
    ),
    "no_repeat_ngram 1": lambda: theirs.NoRepeatNGramLogitsProcessor(1),
    "no_repeat_ngram 2": lambda: theirs.NoRepeatNGramLogitsProcessor(2),
    "no_repeat_ngram 3": lambda: theirs.NoRepeatNGramLogitsProcessor(3),
    "no_repeat_ngram 20": lambda: theirs.NoRepeatNGramLogitsProcessor(20),
    "encoder_no_repeat_ngram 1": lambda: theirs.EncoderNoRepeatNGramLogitsProcessor(1, SOURCE),
    "encoder_no_repeat_ngram 2": lambda: theirs.EncoderNoRepeatNGramLogitsProcessor(2, SOURCE),
    "encoder_no_repeat_ngram 9": lambda: theirs.EncoderNoRepeatNGramLogitsProcessor(9, SOURCE),
    "bad_words": lambda: theirs.NoBadWordsLogitsProcessor([[4], [6, 11], [5, 6, 12]], ENDS),
    "bad_words long": lambda: theirs.NoBadWordsLogitsProcessor([[3] * 30], ENDS),
    "sequence_bias": lambda: theirs.SequenceBiasLogitsProcessor(
        {(4,): 1.5, (6, 11): -3.0, (5, 6, 12): 2.0, (5, 6, 13): 0.5}
    ),
    "min_length": lambda: theirs.MinLengthLogitsProcessor(LENGTH + 1, ENDS),
    "min_length reached": lambda: theirs.MinLengthLogitsProcessor(LENGTH, ENDS),
    "min_new_tokens": lambda: theirs.MinNewTokensLengthLogitsProcessor(LENGTH - 2, 3, ENDS),
    "forced_bos": lambda: theirs.ForcedBOSTokenLogitsProcessor(5),
    "forced_eos": lambda: theirs.ForcedEOSTokenLogitsProcessor(LENGTH + 1, ENDS),
    "exponential_decay": lambda: theirs.ExponentialDecayLengthPenalty((2, 1.3), ENDS, 6),
    "exponential_decay later": lambda: theirs.ExponentialDecayLengthPenalty((9, 1.3), ENDS, 6),
    "suppress_tokens": lambda: theirs.SuppressTokensLogitsProcessor([3, 9]),
    "begin_suppress_tokens": lambda: theirs.SuppressTokensAtBeginLogitsProcessor([3, 9], LENGTH),
    "remove_invalid_values": theirs.InfNanRemoveLogitsProcessor,
    "renormalize_logits": theirs.LogitNormalization,
    "watermark": lambda: theirs.WatermarkLogitsProcessor(**WATERMARK),
    "watermark selfhash": lambda: theirs.WatermarkLogitsProcessor(
        **WATERMARK, seeding_scheme="selfhash", context_width=2
    ),
    "prefix": lambda: theirs.PrefixConstrainedLogitsProcessor(
        lambda row, ids: [int(ids[-1]), 3 + row], 1
    ),
}


def ids(length):
    """Two rows that repeat themselves; the second begins with padding."""
    out = torch.randint(3, 9, (2, length), generator=torch.Generator().manual_seed(1))
    out[0, -2:] = torch.tensor([5, 6])
    out[1, -2:] = torch.tensor([3, 4])
    return out


@pytest.mark.parametrize("length", [LENGTH, 1])
@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_transformers(name, length):
    """A row's logits are far enough apart that no cut falls between two equal ones."""
    text = ids(LENGTH)[:, :length]
    scores = 3 * tiny.noise(2, VOCABULARY)
    if name == "remove_invalid_values":
        scores[0, :3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    want = CASES[name]()(text, scores.clone()).numpy()
    buffer = np.full((2, TOTAL), 5, np.int32)
    buffer[:, :length] = text
    (form,) = logits_processors.chain([CASES[name]()], 2, SOURCE.numpy())
    got = jax.jit(lambda form, ids, at, x: form(ids, at, x))(
        form, buffer, np.int32(length), scores.numpy()
    )
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_every_option_has_a_case():
    """A processor that transformers adds shows here."""
    settings = GenerationConfig().to_dict()
    known = {*logits_processors.RULES, *logits_processors.TRACED}
    tested = {type(CASES[name]()) for name in CASES}
    assert known <= tested
    assert {"temperature", "top_h", "typical_p", "watermarking_config"} <= set(settings)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_likeliest_token_is_the_first_of_equals(dtype):
    """Ties, infinities and NaN as in ``argmax``."""
    rows = np.random.default_rng(0).integers(0, 5, (6, 40)).astype(np.float32)
    rows[1], rows[2, 7], rows[3, 9], rows[4, 11:13] = -np.inf, np.inf, -np.inf, np.nan
    scores = jnp.asarray(rows, dtype)
    np.testing.assert_array_equal(jax.jit(likeliest)(scores), np.argmax(scores, -1))
