"""The choice of decoding: which ways give a model's own logits, tried once for each model.

transformers marks classes whose static caches it compiles and tests. For others, and without a
cache, the first two logits are compared with those of ``GrowingText``. A padded prompt is exact if
the padding changes nothing: the same program runs with two kinds of padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

import jax
import numpy as np

from anyjax.errors import DataDependent, ForwardFailed
from anyjax.hf.generation.decode import programs
from anyjax.hf.generation.decode.assisted_programs import compare_blocks
from anyjax.hf.generation.decode.programs import CacheChangesShape, Plan
from anyjax.hf.generation.decode.unbounded import GrowingText
from anyjax.hf.generation.job.job import Job
from anyjax.hf.generation.request.request import PROMPT_ONLY, TYPES, sees_ahead
from anyjax.multiprocess import values
from anyjax.typing import PyTree

TOLERANCE = {4: 1e-3, 2: 5e-2}  # of the largest logit, by bytes of the params' dtype


class Decoding(Enum):
    """A way of decoding that is exact for some models and not for others.

    Attributes:
      PADDED: a prompt padded on the right up to its bucket, into a cache of fixed shape.
      CACHED: a prompt of its own length, into a cache of fixed shape.
      RECOMPUTED: no cache, the whole text again at every step, in a buffer of fixed length.
      BLOCKS: several tokens in one step, as drafts need it.
    """

    PADDED = "padded"
    CACHED = "cached"
    RECOMPUTED = "recomputed"
    BLOCKS = "blocks"


def plans(job: Job) -> Iterator[Plan]:
    """Yields the plans that are exact for this call, fastest first; none if only ``GrowingText``
    is.
    """
    plan, ahead = job.plan, sees_ahead(job.model.source.module)
    if plan.cached:
        padded = replace(plan, padded=True)
        text_only = not job.request.encoder
        text_only &= not any(tap.edit is None for tap in job.model.source.taps)  # exact lengths
        text_only &= not {*PROMPT_ONLY, *TYPES} & {*job.request.model_inputs}
        if text_only and not ahead and is_exact(Decoding.PADDED, job, padded):
            yield padded
        if is_exact(Decoding.CACHED, job, plan):
            yield plan
    recomputed = replace(plan, cached=False)
    if not ahead and is_exact(Decoding.RECOMPUTED, job, recomputed):
        yield recomputed


def is_exact(decoding: Decoding, job: Job, plan: Plan) -> bool:
    """Returns whether this way of decoding is exact for the job's model, tried on its prompt once.

    The answer is noted in the cache of the model's source, for the arguments that the call has.
    """
    argument_names = tuple(sorted(job.request.model_inputs))
    notes = job.model.source.cache.notes
    key = decoding, argument_names, len(plan.static_inputs)
    if key not in notes:
        try:
            notes[key] = _try(decoding, job, plan)
        except (CacheChangesShape, DataDependent, ForwardFailed):
            notes[key] = False
        except RuntimeError as error:  # torch's, of constants: masks for static caches in GIT
            if isinstance(error, jax.errors.JaxRuntimeError):
                raise
            notes[key] = False
    return notes[key]


def _try(decoding: Decoding, job: Job, plan: Plan) -> bool:
    tested = getattr(type(job.model.source.module), "_can_compile_fullgraph", False)
    if decoding is Decoding.BLOCKS:
        return tested or _reads_blocks(job, plan)
    if decoding is Decoding.CACHED and tested:
        job.decode(plan)
        return True
    if decoding is not Decoding.CACHED and not _ignores_padding(job, plan):
        return False
    return (tested and plan.cached) or _equals_literal(job, plan)


def _ignores_padding(job: Job, plan: Plan) -> bool:
    """Returns whether the logits are the same for any tokens behind the text."""
    if plan.cached:
        zeros, stays, carry = job.prefill(plan)
        _trace_decode(job, plan, stays, carry)
        ones = job.prefill(plan, 1)[0]
    else:
        zeros, ones = (job.first_logits(plan, filler) for filler in (0, 1))
    return bool((values(zeros) == values(ones)).all())


def _trace_decode(job: Job, plan: Plan, stays: object, carry: dict[str, PyTree]) -> None:
    """Raises CacheChangesShape or DataDependent where the second program cannot be traced."""
    along = programs.extended(job.along, plan.total)
    ends = np.int32(0), np.int32(0)
    programs.decode.eval_shape(job.model, carry, stays, along, *ends, job.picker, plan)


def _equals_literal(job: Job, plan: Plan) -> bool:
    """Returns whether the first two logits are those of a text that grows."""
    literal = GrowingText(
        job.model, job.request.ids, job.model_inputs, job.request.encoder, job.plan
    )
    if not _close(job, literal.logits, job.first_logits(plan)):
        return False
    _, stays, carry = job.prefill(plan)
    ids = job.initial_carry()["ids"]
    ids[:, job.length] = values(literal.logits.argmax(-1))
    literal.append(ids[:, : job.length + 1])
    logits = job.step_logits(plan, ids, job.length + 1, stays, carry["state"])
    return _close(job, literal.logits, logits)


def _reads_blocks(job: Job, plan: Plan) -> bool:
    """Returns whether two tokens in one step give the same logits as in two steps."""
    _, stays, carry = job.prefill(plan)
    along = programs.extended(job.along, plan.total)
    step_args = np.int32(job.length), stays, carry["state"], along
    return _close(job, *compare_blocks(job.model, carry["ids"], *step_args))


def _close(job: Job, expected: Any, actual: Any) -> bool:
    width = min((x.dtype.itemsize for x in jax.tree.leaves(job.model.params)), default=4)
    expected, actual = values(expected), values(actual)
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1e-6)
    limit = TOLERANCE.get(width, 1e-3) * scale
    same = (expected == actual) | (np.abs(expected - actual) <= limit)
    return expected.shape == actual.shape and bool(same.all())
