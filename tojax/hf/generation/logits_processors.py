"""transformers' logits processors as functions (ids, at, scores) -> scores of fixed shapes.

``ids`` is a buffer of which the first ``at`` positions are filled. Processors that look at the
scores alone are traced through the torch engine as they are. Those that look at the ids have a
static form in ``RULES``. What is left (watermarks, functions of the user's) is called on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.tree_util import Partial
from transformers.generation import logits_process as theirs

from tojax.errors import Unsupported
from tojax.hf.generation.request import as_numpy
from tojax.torch import from_torch
from tojax.trees import Static

LOWEST = -jnp.inf


def among(tokens, scores):
    """Which entries of the vocabulary are in ``tokens``."""
    return (jnp.arange(scores.shape[-1])[:, None] == tokens).any(1)


def marked(tokens, where, scores):
    """[batch, vocabulary]: the ``tokens`` [batch, n] for which ``where`` holds."""
    size = scores.shape[-1]
    column = jnp.where(where, jnp.minimum(tokens, size), size)
    rows = jnp.arange(len(scores))[:, None]
    return jnp.zeros((len(scores), size + 1), bool).at[rows, column].set(True)[:, :size]


def min_length(least, ends, ids, at, scores):
    """No end token before ``least`` positions."""
    return jnp.where((at < least) & among(ends, scores), LOWEST, scores)


def repetition_penalty(penalty, skipped, ids, at, scores):
    """Tokens that occurred, but for the first ``skipped`` of each row, are less likely."""
    place = jnp.arange(ids.shape[1])
    seen = marked(ids, (place < at) & (place >= skipped[:, None]), scores)
    return jnp.where(seen, jnp.where(scores < 0, scores * penalty, scores / penalty), scores)


def no_repeat_ngram(size, ids, at, scores):
    """No token that would complete a run of ``size`` tokens which occurred before."""
    return _without_ngrams(size.value, ids, at, ids, at, scores)


def encoder_no_repeat_ngram(size, source, ids, at, scores):
    """No token that would complete a run of ``size`` tokens of the encoder's input."""
    source = jnp.repeat(source, len(ids) // len(source), 0)
    return _without_ngrams(size.value, source, source.shape[1], ids, at, scores)


def _without_ngrams(size, source, filled, ids, at, scores):
    count = source.shape[1] - size + 1
    if count < 1:
        return scores
    prefix = jax.lax.dynamic_slice_in_dim(ids, jnp.maximum(at - size + 1, 0), size - 1, 1)
    starts = jnp.arange(count)
    match = (starts + size <= filled) & (at >= size - 1)
    match = jnp.broadcast_to(match, (len(ids), count))
    for i in range(size - 1):
        match = match & (source[:, i : i + count] == prefix[:, i : i + 1])
    return jnp.where(marked(source[:, size - 1 :], match, scores), LOWEST, scores)


def sequence_bias(single, groups, ids, at, scores):
    """Adds a bias to single tokens, and to the last token of sequences that have begun."""
    bias = jnp.zeros_like(scores) + single
    for prefixes, last, values in groups:
        count = prefixes.shape[1]
        if count > ids.shape[1]:
            continue
        tail = jax.lax.dynamic_slice_in_dim(ids, jnp.maximum(at - count, 0), count, 1)
        match = (tail[:, None] == prefixes).all(-1) & (at >= count)
        bias = bias.at[:, last].add(jnp.where(match, values, 0))
    return scores + bias


def forced(position, tokens, ids, at, scores):
    """Only ``tokens`` at one position."""
    only = jnp.where(among(tokens, scores), 0.0, LOWEST)
    return jnp.where(at == position, only, scores)


def suppressed_at(position, tokens, ids, at, scores):
    """None of ``tokens`` at one position."""
    return jnp.where((at == position) & among(tokens, scores), LOWEST, scores)


def exponential_decay(start, factor, ends, ids, at, scores):
    """End tokens grow likelier from ``start`` on."""
    gain = jnp.abs(scores) * (jnp.power(factor, at - start) - 1)
    use = (at > start) & among(ends, scores) & jnp.isfinite(scores)
    return scores + jnp.where(use, gain, 0)


def _of_repetition(p, batch):
    skipped = 0 if p.prompt_ignore_length is None else as_numpy(p.prompt_ignore_length)
    return Partial(repetition_penalty, p.penalty, np.broadcast_to(skipped, (batch,)))


def _of_bias(p, batch):
    single = {s[0]: b for s, b in p.sequence_bias.items() if len(s) == 1}
    groups = []  # of one length each: (all but the last token, the last, the bias)
    for size in sorted({len(s) for s in p.sequence_bias} - {1}):
        bias = {s: b for s, b in p.sequence_bias.items() if len(s) == size}
        tokens = np.array([*bias], np.int32)
        groups.append((tokens[:, :-1], tokens[:, -1], np.array([*bias.values()], np.float32)))
    one = np.array([[s] for s in single], np.int32).reshape(-1, 1)
    return Partial(_biased, one[:, 0], np.array([*single.values()], np.float32), groups)


def _biased(tokens, values, groups, ids, at, scores):
    single = jnp.zeros(scores.shape[-1]).at[tokens].add(values)
    return sequence_bias(single, groups, ids, at, scores)


def _of_encoder_ngrams(p, batch):
    rows = getattr(p, "source", None)
    return Partial(encoder_no_repeat_ngram, Static(p.ngram_size), as_numpy(rows))


RULES: dict[type, Callable] = {
    theirs.MinLengthLogitsProcessor: lambda p, n: Partial(
        min_length, p.min_length, as_numpy(p.eos_token_id)
    ),
    theirs.MinNewTokensLengthLogitsProcessor: lambda p, n: Partial(
        min_length, p.prompt_length_to_skip + p.min_new_tokens, as_numpy(p.eos_token_id)
    ),
    theirs.RepetitionPenaltyLogitsProcessor: _of_repetition,
    theirs.NoRepeatNGramLogitsProcessor: lambda p, n: Partial(
        no_repeat_ngram, Static(p.ngram_size)
    ),
    theirs.EncoderNoRepeatNGramLogitsProcessor: _of_encoder_ngrams,
    theirs.SequenceBiasLogitsProcessor: _of_bias,
    theirs.NoBadWordsLogitsProcessor: _of_bias,
    theirs.ForcedBOSTokenLogitsProcessor: lambda p, n: Partial(
        forced, 1, np.atleast_1d(np.int32(p.bos_token_id))
    ),
    theirs.ForcedEOSTokenLogitsProcessor: lambda p, n: Partial(
        forced, p.max_length - 1, np.atleast_1d(as_numpy(p.eos_token_id))
    ),
    theirs.ExponentialDecayLengthPenalty: lambda p, n: Partial(
        exponential_decay, p.regulation_start, p.regulation_factor, as_numpy(p.eos_token_id)
    ),
    theirs.SuppressTokensAtBeginLogitsProcessor: lambda p, n: Partial(
        suppressed_at, p.begin_index, as_numpy(p.begin_suppress_tokens)
    ),
}
TRACED = {
    theirs.TemperatureLogitsWarper,
    theirs.TopPLogitsWarper,
    theirs.TopKLogitsWarper,
    theirs.TopHLogitsWarper,
    theirs.MinPLogitsWarper,
    theirs.TypicalLogitsWarper,
    theirs.EpsilonLogitsWarper,
    theirs.EtaLogitsWarper,
    theirs.EncoderRepetitionPenaltyLogitsProcessor,
    theirs.InfNanRemoveLogitsProcessor,
    theirs.LogitNormalization,
    theirs.SuppressTokensLogitsProcessor,
}


@dataclass(frozen=True)
class Traced:
    """A processor of transformers that looks at the scores alone, through the torch engine."""

    key: tuple
    processor: Any = field(compare=False)

    def __call__(self, ids, at, scores):
        return from_torch(lambda scores: self.processor(None, scores)).apply({}, scores)


@dataclass(frozen=True, eq=False)
class OnHost:
    """A processor that is called with torch tensors outside of the program, at every step."""

    processor: Any

    def __call__(self, ids, at, scores):
        shape = jax.ShapeDtypeStruct(scores.shape, scores.dtype)
        return jax.pure_callback(self.call, shape, ids, at, scores)

    def call(self, ids, at, scores):
        """The processor's scores."""
        filled = torch.from_numpy(np.array(ids)[:, : int(at)]).long()
        out = self.processor(filled, torch.from_numpy(np.array(scores)))
        return out.numpy().astype(np.float32)


def chain(processors: Any, batch: int, source: np.ndarray | None) -> tuple:
    """Their static forms, in order.

    Raises:
      Unsupported: a processor that calls the model itself.
    """
    return tuple(_form(p, batch, source) for p in processors)


def _form(processor: Any, batch: int, source: np.ndarray | None) -> Any:
    kind = type(processor)
    if kind is theirs.UnbatchedClassifierFreeGuidanceLogitsProcessor:
        raise Unsupported(
            "the option guidance_scale",
            why="it runs the model a second time at every step",
            do="leave it out, or combine two models' logits in a loop around model.cache",
        )
    if kind is theirs.EncoderNoRepeatNGramLogitsProcessor:
        processor.source = torch.as_tensor(source)
    if kind in RULES:
        return RULES[kind](processor, batch)
    if kind in TRACED:
        return Partial(Traced((kind, *content(vars(processor))), processor))
    return Partial(OnHost(processor))


def content(values: dict[str, Any]) -> tuple:
    """Attributes, comparable."""
    plain = lambda v: (v.dtype, tuple(v.shape), v.numpy().tobytes()) if hasattr(v, "numpy") else v
    return tuple((k, plain(v)) for k, v in sorted(values.items()))
