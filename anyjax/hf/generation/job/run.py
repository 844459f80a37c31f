"""A call of generate from its prompt to its output: choose the decoding, decode, cut."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
from transformers.generation import utils as generation_utils

from anyjax import warn_once
from anyjax.errors import SlowGeneration, Unsupported
from anyjax.hf.generation.decode import beams, programs
from anyjax.hf.generation.decode.unbounded import GrowingText
from anyjax.hf.generation.job import strategy
from anyjax.hf.generation.job.assisted import Drafts, refuse_drafts
from anyjax.hf.generation.job.job import Job, tokens_of
from anyjax.hf.generation.request.checks import refuse_nan
from anyjax.multiprocess import check_same
from anyjax.typing import PyTree


def run(job: Job, drafts: Drafts | None = None) -> Any:
    """Returns the ids, prompt included, or transformers' output class."""
    if job.mesh is not None and job.mesh.is_multi_process:
        inputs = {"prompts": job.request.source, "rng": job.rng, "length": job.last}
        inputs |= job.model_inputs
        check_same(
            {k: x for k, x in inputs.items() if x is not None},
            do="give all prompts in every process, or take a model without a mesh in each",
        )
    if job.streamer is not None:
        job.streamer.put(tokens_of(job.request.ids))
    carry = job.initial_carry() if job.last <= job.length else _decoded(job, drafts)
    if job.streamer is not None:
        job.streamer.end()
    return output(job, carry)


def _decoded(job: Job, drafts: Drafts | None) -> dict[str, Any]:
    """Returns what the fastest exact way of decoding leaves."""
    plan = next(strategy.plans(job), None)
    if plan is None or not plan.cached:
        _refuse_uncached(job, drafts)
    if plan is None:
        return _decode_unbounded(job)
    return job.decode(plan, partial(drafts.begin, job) if drafts else None)


def _refuse_uncached(job: Job, drafts: Drafts | None) -> None:
    """Raises Unsupported for what needs a cache of fixed shape, which the model does not have."""
    name, why = job.model.source.name, "its states do not have a fixed shape"
    if job.reads:
        raise Unsupported(
            f"values inside of {name} for each step",
            why=why,
            do="call the model on the whole text: intermediates(model, pattern)(ids)",
        )
    if job.guide:
        raise Unsupported(
            f"the option guidance_scale with {name}", why=why, do="leave guidance_scale out"
        )
    if drafts:
        refuse_drafts(job.model)


def _decode_unbounded(job: Job) -> dict[str, Any]:
    """Generates all tokens with a program for each length."""
    if job.plan.beams:
        raise Unsupported(
            f"num_beams with {job.model.source.name}",
            why="its states do not have a fixed shape",
            do="leave num_beams out",
        )
    warn_once.warn(
        f"{job.model.source.name} has states or masks that change their shapes with the text, "
        "so every length is a program of its own, or runs op by op",
        SlowGeneration,
    )
    text = GrowingText(job.model, job.request.ids, job.model_inputs, job.request.encoder, job.plan)
    job.check_images(text.logits)
    carry = job.initial_carry()
    while True:
        at = int(carry["at"])
        carry = programs.pick_first(
            job.model, job.plan, job.picker, carry, text.logits, np.int32(job.last)
        )
        job.stream(carry, at)
        if at + 1 >= job.last or bool(carry["done"].all()):
            return carry
        text.append(carry["ids"][:, : at + 1])


def output(job: Job, carry: dict[str, PyTree]) -> Any:
    """Returns the ids, or transformers' output class."""
    refuse_nan(carry["lost"], "after new tokens")
    extra: dict[str, Any] = {}
    settings = job.request.settings
    if job.plan.beams and job.last > job.length:
        ids, scores, beam_indices = beams.best_sequences(
            carry, settings.num_return_sequences, job.length
        )
        ids = jax.device_put(ids)
        extra["sequences_scores"] = jax.device_put(scores) if settings.output_scores else None
        extra["beam_indices"] = jax.device_put(beam_indices)
    else:
        # Cut by numpy: JAX would compile a slice, and asarray a copy, for each length.
        ids = jax.device_put(np.asarray(carry["ids"])[:, : int(carry["at"])])
    if not job.returns_dict:
        return _beside(job, ids, carry)
    count = int(carry["at"]) - job.length
    for name in ("scores", "logits"):
        extra[name] = tuple(carry[name][:count]) if name in carry else None
    kind = "EncoderDecoder" if job.request.encoder else "DecoderOnly"
    cls = getattr(generation_utils, f"Generate{'Beam' if job.plan.beams else ''}{kind}Output")
    return _beside(job, cls(sequences=ids, **extra), carry)


def _beside(job: Job, out: Any, carry: dict[str, PyTree]) -> Any:
    """Returns the output with what each tap read: by path one value for each step."""
    if "readings" not in carry:
        return out
    steps = int(carry["at"]) - job.length - 1
    for prompt, steps_after in zip(carry["prompt readings"], carry["readings"]):
        row = lambda i, tree=steps_after: jax.tree.map(lambda x: x[i], tree)
        rows = [prompt, *map(row, range(steps))]
        out = out, {path: tuple(values[path] for values in rows) for path in prompt}
    return out
