"""transformers' logits processors as functions (ids, at, scores) -> scores of fixed shapes.

``ids`` is a buffer whose first ``at`` positions are filled. Each form is a pytree: its structure is
the function, its leaves are all numbers and tokens, so that new ones need no new program.
Processors with numbers have a form in ``RULES``, here or in ``warpers``; those in ``TRACED`` are
traced through the torch engine. All others (watermarks, the user's own) are called on the host.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.tree_util import Partial
from transformers.generation import logits_process

from anyjax.errors import Unsupported
from anyjax.hf.generation.request.request import as_numpy
from anyjax.hf.generation.request.warpers import WARPERS
from anyjax.torch import from_torch
from anyjax.trees import Static

LOWEST = -jnp.inf
SOURCE_STEP = 16  # lengths of an encoder's input are rounded up to a multiple: fewer programs


def vocabulary_mask(tokens, scores):
    """Returns a mask over the vocabulary, true for ``tokens``."""
    return row_masks(jnp.reshape(tokens, (1, -1)), True, scores[:1])[0]


def row_masks(tokens, where, scores):
    """Returns [batch, vocabulary], true for the ``tokens`` [batch, n] where ``where`` holds."""
    size = scores.shape[-1]
    inside = where & (tokens >= 0) & (tokens < size)
    column = jnp.where(inside, tokens, size)
    rows = jnp.arange(len(scores))[:, None]
    return jnp.zeros((len(scores), size + 1), bool).at[rows, column].set(True)[:, :size]


def min_length(least, ends, ids, at, scores):
    """Forbids end tokens before ``least`` positions."""
    return jnp.where((at < least) & vocabulary_mask(ends, scores), LOWEST, scores)


def repetition_penalty(penalty, skipped, ids, at, scores):
    """Makes tokens of the text less likely, except for the first ``skipped`` of each row."""
    place = jnp.arange(ids.shape[1])
    seen = row_masks(ids, (place < at) & (place >= skipped[:, None]), scores)
    return jnp.where(seen, jnp.where(scores < 0, scores * penalty, scores / penalty), scores)


def encoder_repetition_penalty(penalty, source, length, ids, at, scores):
    """Makes tokens of the encoder's input likelier."""
    seen = row_masks(_per_row(source, ids), jnp.arange(source.shape[1]) < length, scores)
    return jnp.where(seen, jnp.where(scores < 0, scores * penalty, scores / penalty), scores)


def _per_row(source, ids):
    """Repeats the encoder's input for each beam."""
    return jnp.repeat(source, max(1, len(ids) // len(source)), 0)


def no_repeat_ngram(size, ids, at, scores):
    """Forbids tokens that complete a run of ``size`` tokens which occurred before."""
    return _without_ngrams(size.value, ids, at, ids, at, scores)


def encoder_no_repeat_ngram(size, source, length, ids, at, scores):
    """Forbids tokens that complete a run of ``size`` tokens of the encoder's input."""
    return _without_ngrams(size.value, _per_row(source, ids), length, ids, at, scores)


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
    return jnp.where(row_masks(source[:, size - 1 :], match, scores), LOWEST, scores)


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
    """Allows only ``tokens`` at one position."""
    only = jnp.where(vocabulary_mask(tokens, scores), 0.0, LOWEST)
    return jnp.where(at == position, only, scores)


def suppressed(tokens, ids, at, scores):
    """Forbids ``tokens``."""
    return jnp.where(vocabulary_mask(tokens, scores), LOWEST, scores)


def suppressed_at(position, tokens, ids, at, scores):
    """Forbids ``tokens`` at one position."""
    return jnp.where((at == position) & vocabulary_mask(tokens, scores), LOWEST, scores)


def exponential_decay(start, factor, ends, ids, at, scores):
    """Makes end tokens likelier and likelier from ``start`` on."""
    gain = jnp.abs(scores) * (jnp.power(factor, at - start) - 1)
    use = (at > start) & vocabulary_mask(ends, scores) & jnp.isfinite(scores)
    return scores + jnp.where(use, gain, 0)


def _of_repetition(p, batch):
    skipped = 0 if p.prompt_ignore_length is None else as_numpy(p.prompt_ignore_length)
    return Partial(
        repetition_penalty, np.float32(p.penalty), np.broadcast_to(np.int32(skipped), (batch,))
    )


def _of_bias(p, batch):
    single = {s[0]: b for s, b in p.sequence_bias.items() if len(s) == 1}
    groups = []  # of one length each: (all but the last token, the last, the bias)
    for size in sorted({len(s) for s in p.sequence_bias} - {1}):
        bias = {s: b for s, b in p.sequence_bias.items() if len(s) == size}
        tokens = np.array([*bias], np.int32)
        groups.append((tokens[:, :-1], tokens[:, -1], np.array([*bias.values()], np.float32)))
    single_tokens = np.array([[s] for s in single], np.int32).reshape(-1, 1)
    return Partial(_biased, single_tokens[:, 0], np.array([*single.values()], np.float32), groups)


def _biased(tokens, values, groups, ids, at, scores):
    single = jnp.zeros(scores.shape[-1]).at[tokens].add(values)
    return sequence_bias(single, groups, ids, at, scores)


def _rounded(source):
    """Returns (the encoder's input, padded to a multiple of ``SOURCE_STEP``; its length)."""
    rows = as_numpy(source)
    length = rows.shape[1]
    return np.pad(rows, ((0, 0), (0, -length % SOURCE_STEP))), np.int32(length)


RULES: dict[type, Callable] = WARPERS | {
    logits_process.MinLengthLogitsProcessor: lambda p, n: Partial(
        min_length, p.min_length, as_numpy(p.eos_token_id)
    ),
    logits_process.MinNewTokensLengthLogitsProcessor: lambda p, n: Partial(
        min_length, p.prompt_length_to_skip + p.min_new_tokens, as_numpy(p.eos_token_id)
    ),
    logits_process.RepetitionPenaltyLogitsProcessor: _of_repetition,
    logits_process.NoRepeatNGramLogitsProcessor: lambda p, n: Partial(
        no_repeat_ngram, Static(p.ngram_size)
    ),
    logits_process.EncoderNoRepeatNGramLogitsProcessor: lambda p, n: Partial(
        encoder_no_repeat_ngram, Static(p.ngram_size), *_rounded(p.source)
    ),
    logits_process.SequenceBiasLogitsProcessor: _of_bias,
    logits_process.NoBadWordsLogitsProcessor: _of_bias,
    logits_process.ForcedBOSTokenLogitsProcessor: lambda p, n: Partial(
        forced, 1, np.atleast_1d(np.int32(p.bos_token_id))
    ),
    logits_process.ForcedEOSTokenLogitsProcessor: lambda p, n: Partial(
        forced, p.max_length - 1, np.atleast_1d(as_numpy(p.eos_token_id))
    ),
    logits_process.ExponentialDecayLengthPenalty: lambda p, n: Partial(
        exponential_decay, p.regulation_start, p.regulation_factor, as_numpy(p.eos_token_id)
    ),
    logits_process.EncoderRepetitionPenaltyLogitsProcessor: lambda p, n: Partial(
        encoder_repetition_penalty, np.float32(p.penalty), *_rounded(p.encoder_input_ids)
    ),
    logits_process.SuppressTokensLogitsProcessor: lambda p, n: Partial(
        suppressed, as_numpy(p.suppress_tokens)
    ),
    logits_process.SuppressTokensAtBeginLogitsProcessor: lambda p, n: Partial(
        suppressed_at, p.begin_index, as_numpy(p.begin_suppress_tokens)
    ),
}
# Processors without numbers.
TRACED = {logits_process.InfNanRemoveLogitsProcessor, logits_process.LogitNormalization}


@dataclass(frozen=True)
class Traced:
    """A processor of transformers without numbers of its own, through the torch engine."""

    kind: type
    processor: logits_process.LogitsProcessor = field(compare=False)

    def __call__(self, ids, at, scores):
        return from_torch(lambda scores: self.processor(None, scores)).apply({}, scores)


@dataclass(frozen=True)
class OnHost:
    """A processor that is called with torch tensors, outside of the program, at every step.

    The program holds only its number, so that one program serves all such processors.
    """

    processor: logits_process.LogitsProcessor = field(compare=False)

    def numbered(self) -> Partial:
        """Returns itself with a number, under which it is found as long as this object lives."""
        number = next(_NUMBERS)
        _BY_NUMBER[number] = self
        return Partial(self, np.int32(number))

    def __call__(self, number, ids, at, scores):
        shape = jax.ShapeDtypeStruct(scores.shape, scores.dtype)
        return jax.pure_callback(_on_host, shape, number, ids, at, scores)


def _on_host(number, ids, at, scores):
    processor = _BY_NUMBER[int(number)].processor
    filled = torch.from_numpy(np.array(ids)[:, : int(at)]).long()
    out = processor(filled, torch.from_numpy(np.array(scores)))
    return out.numpy().astype(np.float32)


_NUMBERS = itertools.count()
_BY_NUMBER: weakref.WeakValueDictionary[int, OnHost] = weakref.WeakValueDictionary()


def chain(
    processors: list[logits_process.LogitsProcessor], batch: int, source: np.ndarray | None
) -> tuple:
    """Returns the static forms of processors, in order.

    Raises:
      Unsupported: a processor that calls the model itself.
    """
    return tuple(_static_form(p, batch, source) for p in processors)


def _static_form(
    processor: logits_process.LogitsProcessor, batch: int, source: np.ndarray | None
) -> Any:
    kind = type(processor)
    if kind is logits_process.UnbatchedClassifierFreeGuidanceLogitsProcessor:
        raise Unsupported(
            "the option guidance_scale",
            why="it runs the model a second time at every step",
            do="leave it out, or combine two models' logits in a loop around model.cache",
        )
    if kind is logits_process.EncoderNoRepeatNGramLogitsProcessor:
        processor.source = torch.as_tensor(source)
    if kind in RULES:
        return RULES[kind](processor, batch)
    if kind in TRACED:
        return Partial(Traced(kind, processor))
    return OnHost(processor).numbered()


def attributes_key(values: dict[str, object]) -> tuple:
    """Returns attributes as a tuple that can be compared."""
    comparable = lambda v: (
        (v.dtype, tuple(v.shape), v.numpy().tobytes()) if hasattr(v, "numpy") else v
    )
    return tuple((k, comparable(v)) for k, v in sorted(values.items()))
