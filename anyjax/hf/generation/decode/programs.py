"""Decoding with arrays of fixed shape: a prefill program and one ``while_loop`` program.

A cache of fixed shape is the carry of the loop. Without one (``plan.cached`` is False) the whole
text so far is run again at every step, in a buffer of fixed length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from anyjax.calls.program import Program, program
from anyjax.hf.generation.decode import beams, guidance, model_steps, static_cache
from anyjax.hf.generation.decode.beams import Beams
from anyjax.hf.generation.request.request import ALIGNED, PROMPT_ONLY, TYPES
from anyjax.hf.generation.request.stopping import UNPADDED
from anyjax.model import Model
from anyjax.trees import Static


class CacheChangesShape(Exception):
    """The model's cache does not keep its shape, or cannot be rewound behind a padded prompt."""


@dataclass(frozen=True)
class Plan:
    """The static arguments that a program is compiled for.

    Attributes:
      total: positions of the buffers.
      cached: whether steps use a cache.
      padded: whether the prompt is padded on the right, up to its bucket.
      static_inputs: arguments of the model that are no arrays, or decide shapes.
      sample: draw tokens instead of taking the likeliest.
      scores: the number of steps whose scores are recorded.
      logits: the number of steps whose logits are recorded.
      beams: the options of beam search.
    """

    total: int
    cached: bool = True
    padded: bool = False
    static_inputs: tuple[tuple[str, Any], ...] = ()
    sample: bool = False
    scores: int = 0
    logits: int = 0
    beams: Beams | None = None


@dataclass(frozen=True)
class Picker:
    """The functions and numbers that pick a token from logits, a pytree.

    Attributes:
      chain: functions (ids, at, scores) -> scores.
      stops: functions (ids, at) -> rows that end.
      ends: the end tokens.
      pad: the token behind the end of a row.
    """

    chain: tuple
    stops: tuple
    ends: Any
    pad: Any


jax.tree_util.register_dataclass(
    Picker, data_fields=["chain", "stops", "ends", "pad"], meta_fields=[]
)


def inputs_by_position(model: Model) -> tuple[str, ...]:
    """Returns the names of arguments with an entry per position of the decoded text."""
    if model.source.module.config.is_encoder_decoder:
        return ("decoder_attention_mask", "decoder_position_ids")
    return (*ALIGNED[:2], *TYPES)


@program(static_argnames=("plan", "encoder"))
def prefill(
    model: Model, ids, model_inputs, source, carry, picker, last, plan: Plan, encoder: str | None
):
    """Returns (logits after the prompt, arguments that stay, carry with the first token)."""
    length = carry["at"]
    model_inputs = model_inputs | dict(plan.static_inputs)
    if encoder is not None:
        model_inputs = model_steps.call_runner(
            model, "encode", name=encoder, inputs=source, model_inputs=model_inputs
        )
    model_inputs = {
        k: v for k, v in model_inputs.items() if not (isinstance(v, Static) and v.value is None)
    }
    if not plan.cached:
        return None, model_inputs, carry | {"state": {}}
    place = logits_positions(model, plan, length)
    last_place = {} if place is None else {"logits_to_keep": place}
    logits, state = model_steps.call_runner(
        model, "prefill", ids=ids, model_inputs=model_inputs, length=plan.total, **last_place
    )
    if model_steps.READINGS in state:
        carry = carry | {"prompt readings": state.pop(model_steps.READINGS)}
    if plan.padded:
        if not static_cache.rewindable(state):
            raise CacheChangesShape
        state = static_cache.rewind(state, length)
    at = -1 if (plan.padded and place is not None) or not plan.padded else length - 1
    stays = {
        k: v
        for k, v in model_inputs.items()
        if k not in (*PROMPT_ONLY, *inputs_by_position(model), *state)
    }
    logits = last_logits(logits, at)
    if "guide" in carry:
        beginning = guidance.prefill_guide(model, carry["guide"], plan.total, extended, last_logits)
        carry = carry | {"guide": beginning}
    return logits, stays, pick_tokens(model, plan, picker, carry | {"state": state}, logits, last)


def logits_positions(model: Model, plan: Plan, length):
    """Returns the ``logits_to_keep`` of a prompt; None where forward does not take it."""
    if not model_steps.selects_logits(model):
        return None
    return jnp.reshape(length - 1, 1) if plan.padded else 1


def last_logits(logits, at):
    """Returns the logits of one position, which may be traced, float32 ``[batch, vocabulary]``."""
    axis = logits.ndim - 2
    row = jax.lax.dynamic_index_in_dim(logits, at, axis, False) if not isinstance(at, int) else None
    return (logits[..., at, :] if row is None else row).astype(jnp.float32)


def advance(model: Model, tokens, at, stays, state, along):
    """Reads ``tokens``, the last of the first ``at`` positions; returns (all logits, state)."""
    count = tokens.shape[1]
    last_entries = {k: _last_entries(k, v, at, count) for k, v in along.items()}
    model_inputs = stays | state | last_entries
    logits, new = model_steps.call_runner(
        model, "step", ids=tokens, model_inputs=model_inputs, count=count
    )
    readings = {k: new.pop(k) for k in (model_steps.READINGS,) if k in new}
    return logits, _checked_state(state, new) | readings


def decode_step(model: Model, plan: Plan, ids, at, stays, state, along):
    """Returns (logits, state) after the text ``ids[:, :at]``; ``along`` covers all positions."""
    if plan.cached:
        token = jax.lax.dynamic_slice_in_dim(ids, at - 1, 1, 1)
        logits, state = advance(model, token, at, stays, state, along)
        return last_logits(logits, -1), state
    seen = jnp.arange(ids.shape[1]) < at
    entries_so_far = {k: _entries_until(k, v, at, seen) for k, v in along.items()}
    logits_to_keep = jnp.reshape(at - 1, 1) if model_steps.selects_logits(model) else None
    logits, _ = model_steps.call_runner(
        model,
        "step",
        ids=ids,
        model_inputs=stays | entries_so_far,
        count=None,
        logits_to_keep=logits_to_keep,
        use_cache=False,
        first=True,
    )
    return last_logits(logits, -1 if logits_to_keep is not None else at - 1), state


def _entries_until(name: str, value, at, seen):
    """Hides positions behind the text in a mask; in positions, repeats the text's last one.

    The largest position decides the frequencies of some rotary embeddings.
    """
    if name.endswith("attention_mask"):
        return value * seen
    last = jax.lax.dynamic_slice_in_dim(value, at - 1, 1, value.ndim - 1)
    return jnp.where(seen, value, last) if name.endswith("position_ids") else value


def _last_entries(name: str, value, at, count: int):
    """Returns the entries of the last ``count`` positions; a mask as a whole."""
    if name.endswith("attention_mask"):
        return value
    return jax.lax.dynamic_slice_in_dim(value, at - count, count, value.ndim - 1)


def _checked_state(old, new):
    """Returns ``new`` in the dtypes of ``old``.

    Raises:
      CacheChangesShape: its structure or shapes differ.
    """
    shapes = lambda tree: [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]
    structure: Any = jax.tree.structure(old)
    if structure != jax.tree.structure(new) or shapes(old) != shapes(new):
        raise CacheChangesShape
    return jax.tree.map(lambda a, b: jax.lax.convert_element_type(b, a.dtype), old, new)


def extended(along: dict[str, Any], total: int) -> dict[str, Any]:
    """Extends masks, positions and types of the prompt to ``total`` positions.

    Later positions are seen, count on from the last one, and have its type (0 for images).
    """
    out = {}
    for name, value in along.items():
        xp = value.__array_namespace__()
        count = total - value.shape[-1]
        last = value[..., -1:]
        if name.endswith("attention_mask"):
            tail = xp.ones((*value.shape[:-1], count), dtype=value.dtype)
        elif name.endswith("position_ids"):
            tail = last + 1 + xp.arange(count, dtype=value.dtype)
        elif name == "mm_token_type_ids":
            tail = xp.zeros((*value.shape[:-1], count), dtype=value.dtype)
        else:
            tail = xp.repeat(last, count, axis=-1)
        out[name] = xp.concat([value, tail], axis=-1)
    return out


def pick_tokens(model: Model, plan: Plan, picker: Picker, carry, logits, last):
    """Returns the carry with one token more, picked from ``logits``."""
    carry = allocate_records(plan, carry, logits)
    if plan.beams is None:
        return choose_tokens(plan, picker, carry, logits)
    carry = carry | {"lost": nan_rows(carry, logits)}
    carry, rows = beams.choose_beams(plan.beams, plan.sample, picker, carry, logits, last)
    if carry["state"]:
        state = model_steps.call_runner(model, "reorder", state=carry["state"], rows=rows)
        carry = carry | {"state": _checked_state(carry["state"], state)}
    return carry


def allocate_records(plan: Plan, carry, logits):
    """Returns the carry with buffers for the scores and logits that are recorded."""
    record_steps = {"scores": plan.scores, "logits": plan.logits}
    records = {
        k: jnp.zeros((n, *logits.shape)) for k, n in record_steps.items() if n and k not in carry
    }
    return carry | records


def choose_tokens(plan: Plan, picker: Picker, carry, logits):
    """Returns the carry with one token more for every row, the likeliest or a drawn one."""
    ids, at = carry["ids"], carry["at"]
    scores = guidance.guided_scores(carry["guide"], logits) if "guide" in carry else logits
    for process in picker.chain:
        scores = process(ids, at, scores)
    if plan.sample:
        rng, key = jax.random.split(carry["rng"])
        carry = carry | {"rng": rng}
        token = jax.random.categorical(key, scores, -1)
    else:
        token = likeliest(scores)
    token = jnp.where(ended_rows(carry, picker), picker.pad, token).astype(ids.dtype)
    ids = jax.lax.dynamic_update_slice_in_dim(ids, token[:, None], at, 1)
    done = carry["done"] | (token[:, None] == picker.ends).any(1)
    for stop in picker.stops:
        done = done | stop(ids, at + 1)
    advanced = {"ids": ids, "at": at + 1, "done": done, "lost": nan_rows(carry, logits)}
    return record_step(carry, scores, logits) | advanced


def nan_rows(carry, logits):
    """Returns the rows whose logits were NaN before their end, judged by two logits."""
    nan = jnp.isnan(logits[:, 0]) & jnp.isnan(logits[:, -1])
    return carry["lost"] | (nan.reshape(carry["done"].shape[0], -1).any(-1) & ~carry["done"])


def likeliest(scores):
    """Returns ``scores.argmax(-1)``, faster: the first of the largest of each row, or a NaN.

    XLA:CPU's argmax reads one number at a time. A maximum and the first position that has it are
    two passes of whole vectors, a fifth of its time over 32,000 tokens.
    """
    high = scores.max(-1, keepdims=True)
    position = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)
    is_largest = (scores == high) | (scores != scores)
    return jnp.where(is_largest, position, scores.shape[-1] - 1).min(-1)


def ended_rows(carry, picker: Picker):
    """Returns a mask of the rows that have ended and are padded."""
    return carry["done"] & (picker.pad != UNPADDED)


def record_step(carry, scores, logits):
    """Returns the carry with this step's scores and logits, where they are recorded."""
    for name, rows in (("scores", scores), ("logits", logits)):
        if name in carry:
            index = carry["at"] - carry["start"]
            records = jax.lax.dynamic_update_index_in_dim(carry[name], rows, index, 0)
            carry = carry | {name: records}
    return carry


def record_readings(carry, readings):
    """Returns the carry with what taps read in this step; the prompt was the step before."""
    if readings is None:
        return carry
    index = carry["at"] - carry["start"] - 1
    record = lambda record, value: jax.lax.dynamic_update_index_in_dim(record, value, index, 0)
    return carry | {"readings": jax.tree.map(record, carry["readings"], readings)}


pick_first = Program(pick_tokens, static_argnames="plan")


@program(static_argnames="plan", donate_argnames="carry")
def decode(model: Model, carry, stays, along, until, last, picker, plan: Plan):
    """Decodes position by position up to ``until``, ``last`` at most, or until all rows end."""

    def body(carry):
        logits, state = decode_step(
            model, plan, carry["ids"], carry["at"], stays, carry["state"], along
        )
        carry = record_readings(carry, state.pop(model_steps.READINGS, None))
        if "guide" in carry:
            token = jax.lax.dynamic_slice_in_dim(carry["ids"], carry["at"] - 1, 1, 1)
            guide = guidance.advance_guide(model, carry["guide"], token, advance, last_logits)
            carry = carry | {"guide": guide}
        return pick_tokens(model, plan, picker, carry | {"state": state}, logits, last)

    return jax.lax.while_loop(lambda c: (c["at"] < until) & ~c["done"].all(), body, carry)


@program(static_argnames="plan")
def readings_of(model: Model, ids, at, stays, state, along, plan: Plan):
    """Returns what taps read in one step, for its shapes."""
    return decode_step(model, plan, ids, at, stays, state, along)[1][model_steps.READINGS]


@program(static_argnames="plan")
def logits_of(model: Model, ids, at, stays, state, along, plan: Plan):
    """Returns the logits of one step, to compare."""
    return decode_step(model, plan, ids, at, stays, state, along)[0]
