"""Which ways of decoding are right for a model: those that are, are remembered.

transformers marks the classes whose static caches it compiles and tests; for others, and without a
cache, the first two logits are compared with those of ``literal``. A padded prompt is right if what
stands behind it changes nothing: the same program is run with two kinds of padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from tojax.errors import DataDependent, ForwardFailed
from tojax.hf.generation.decode import programs
from tojax.hf.generation.decode.assisted_programs import both_ways
from tojax.hf.generation.decode.growing import Literal
from tojax.hf.generation.decode.programs import Plan, Unfit
from tojax.hf.generation.request.request import PROMPT_ONLY, TYPES, sees_ahead
from tojax.multiprocess import values

TOLERANCE = {4: 1e-3, 2: 5e-2}  # of the largest logit, by bytes of the params' dtype


def plans(job: Any) -> Iterator[Plan]:
    """The plans that are right for this call, fastest first; none if only ``literal`` is."""
    plan, ahead = job.plan, sees_ahead(job.model.source.module)
    if plan.cached:
        padded = replace(plan, padded=True)
        plain = not job.asked.encoder and not {*PROMPT_ONLY, *TYPES} & {*job.asked.given}
        if plain and not ahead and holds("padded", job, padded):
            yield padded
        if holds("cached", job, plan):
            yield plan
    again = replace(plan, cached=False)
    if not ahead and holds("again", job, again):
        yield again


def holds(what: str, job: Any, plan: Plan) -> bool:
    """Whether this way of decoding is right for the job's model."""
    extra = tuple(sorted(job.asked.given))
    known = job.model.source.cache.notes
    key = what, extra, len(plan.fixed)
    if key not in known:
        try:
            known[key] = _tried(what, job, plan)
        except (Unfit, DataDependent, ForwardFailed):
            known[key] = False
        except RuntimeError as error:  # torch's, of constants: masks for static caches in GIT
            if isinstance(error, jax.errors.JaxRuntimeError):
                raise
            known[key] = False
    return known[key]


def _tried(what: str, job: Any, plan: Plan) -> bool:
    tested = getattr(type(job.model.source.module), "_can_compile_fullgraph", False)
    if what == "blocks":
        return tested or _reads_blocks(job, plan)
    if what == "cached" and tested:
        job.decode(plan)
        return True
    if what != "cached" and not _ignores_rest(job, plan):
        return False
    return (tested and plan.cached) or _equals_literal(job, plan)


def _ignores_rest(job: Any, plan: Plan) -> bool:
    """Whether the logits are the same whatever stands behind the text."""
    if plan.cached:
        one, stays, carry = job.prefill(plan)
        _follows(job, plan, stays, carry)
        two = job.prefill(plan, 1)[0]
    else:
        one, two = (first(job, plan, filler) for filler in (0, 1))
    return bool((values(one) == values(two)).all())


def _follows(job: Any, plan: Plan, stays, carry) -> None:
    """Raises Unfit or DataDependent where the second program cannot be traced."""
    along = programs.extended(job.along, plan.total)
    ends = np.int32(0), np.int32(0)
    programs.decode.eval_shape(job.model, carry, stays, along, *ends, job.picker, plan)


def first(job: Any, plan: Plan, filler: int = 0):
    """The logits after the prompt."""
    logits, stays, carry = job.prefill(plan)
    if logits is not None:
        return logits
    ids = job.start(filler)["ids"]
    logits = _logits(job, plan, ids, job.length, stays, carry["state"])
    job.check(logits)
    return logits


def _logits(job: Any, plan: Plan, ids, at: int, stays, state):
    along = programs.extended(job.along, plan.total)
    return programs.logits_of(job.model, ids, np.int32(at), stays, state, along, plan)


def _equals_literal(job: Any, plan: Plan) -> bool:
    """Whether the first two logits are those of a text that grows."""
    want = Literal(job.model, job.asked.ids, job.given, job.asked.encoder, job.plan)
    if not _close(job, want.logits, first(job, plan)):
        return False
    _, stays, carry = job.prefill(plan)
    ids = job.start()["ids"]
    ids[:, job.length] = values(want.logits.argmax(-1))
    want.append(ids[:, : job.length + 1])
    return _close(job, want.logits, _logits(job, plan, ids, job.length + 1, stays, carry["state"]))


def _reads_blocks(job: Any, plan: Plan) -> bool:
    """Whether two tokens that are read at once have the logits that they have one by one."""
    _, stays, carry = job.prefill(plan)
    along = programs.extended(job.along, plan.total)
    rest = np.int32(job.length), stays, carry["state"], along
    return _close(job, *both_ways(job.model, carry["ids"], *rest))


def _close(job: Any, want, got) -> bool:
    width = min((x.dtype.itemsize for x in jax.tree.leaves(job.model.params)), default=4)
    want, got = values(want), values(got)
    scale = np.abs(want[np.isfinite(want)]).max(initial=1e-6)
    same = (want == got) | (np.abs(want - got) <= TOLERANCE.get(width, 1e-3) * scale)
    return want.shape == got.shape and bool(same.all())
