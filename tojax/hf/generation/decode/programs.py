"""Decoding with arrays of fixed shape: a prefill program and one ``while_loop`` program.

A cache that keeps its shape is the carry of the loop. Where there is none the whole text so far is
run again in a buffer of fixed length (``plan.cached`` is False).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from tojax.calls.program import Program, program
from tojax.hf.generation.decode import beams as search
from tojax.hf.generation.decode import guidance as guides
from tojax.hf.generation.decode import model_steps
from tojax.hf.generation.decode import static_cache as caches
from tojax.hf.generation.decode.beams import Beams
from tojax.hf.generation.request.request import ALIGNED, PROMPT_ONLY, TYPES
from tojax.hf.generation.request.stopping import UNPADDED
from tojax.model import Model
from tojax.trees import Static


class Unfit(Exception):
    """The model's cache does not keep its shape, or cannot be rewound behind a padded prompt."""


@dataclass(frozen=True)
class Plan:
    """What a program is compiled for beside shapes.

    Attributes:
      total: positions of the buffers.
      cached: whether steps use a cache.
      padded: whether the prompt is padded on the right, up to its bucket.
      fixed: arguments of the model that are no arrays, or decide shapes.
      sample: draw tokens instead of taking the likeliest.
      scores: for how many steps the scores are kept.
      logits: for how many steps the logits are kept.
      beams: the options of beam search.
    """

    total: int
    cached: bool = True
    padded: bool = False
    fixed: tuple[tuple[str, Any], ...] = ()
    sample: bool = False
    scores: int = 0
    logits: int = 0
    beams: Beams | None = None


@dataclass(frozen=True)
class Picker:
    """How a token is picked from logits, a pytree.

    Attributes:
      chain: functions (ids, at, scores) -> scores.
      stops: functions (ids, at) -> which rows end.
      ends: the end tokens.
      pad: what a row that has ended is filled with.
    """

    chain: tuple
    stops: tuple
    ends: Any
    pad: Any


jax.tree_util.register_dataclass(
    Picker, data_fields=["chain", "stops", "ends", "pad"], meta_fields=[]
)


def follows(model: Model) -> tuple[str, ...]:
    """The arguments that have one entry per position of the text that is decoded."""
    if model.source.module.config.is_encoder_decoder:
        return ("decoder_attention_mask", "decoder_position_ids")
    return (*ALIGNED[:2], *TYPES)


@program(static_argnames=("plan", "encoder"))
def prefill(model: Model, ids, given, source, carry, picker, last, plan: Plan, encoder: str | None):
    """(logits after the prompt, arguments that stay, the loop's carry with the first token)."""
    length = carry["at"]
    given = given | dict(plan.fixed)
    if encoder is not None:
        given = model_steps.run(model, "encode", name=encoder, inputs=source, given=given)
    given = {k: v for k, v in given.items() if not (isinstance(v, Static) and v.value is None)}
    if not plan.cached:
        return None, given, carry | {"state": {}}
    keep = _keep(model, plan, length)
    logits, state = model_steps.run(
        model,
        "prefill",
        ids=ids,
        given=given,
        length=plan.total,
        keep=keep,
        use_cache=True,
    )
    if plan.padded:
        if not caches.rewindable(state):
            raise Unfit
        state = caches.rewind(state, length)
    at = -1 if (plan.padded and keep is not None) or not plan.padded else length - 1
    stays = {k: v for k, v in given.items() if k not in (*PROMPT_ONLY, *follows(model), *state)}
    logits = last_logits(logits, at)
    if "guide" in carry:
        beginning = guides.start(model, carry["guide"], plan.total, extended, last_logits)
        carry = carry | {"guide": beginning}
    return logits, stays, pick(model, plan, picker, carry | {"state": state}, logits, last)


def _keep(model: Model, plan: Plan, length):
    if not model_steps.keeps(model):
        return None
    return jnp.reshape(length - 1, 1) if plan.padded else 1


def last_logits(logits, at):
    """float32 ``[batch, vocabulary]`` of one position, which may be traced."""
    axis = logits.ndim - 2
    row = jax.lax.dynamic_index_in_dim(logits, at, axis, False) if not isinstance(at, int) else None
    return (logits[..., at, :] if row is None else row).astype(jnp.float32)


def advance(model: Model, tokens, at, stays, state, along):
    """(logits of all ``tokens``, state): they are the last ones of the first ``at`` positions."""
    count = tokens.shape[1]
    here = {k: _here(k, v, at, count) for k, v in along.items()}
    given = stays | state | here
    logits, new = model_steps.run(
        model, "step", ids=tokens, given=given, count=count, keep=None, use_cache=True
    )
    return logits, _same(state, new)


def step(model: Model, plan: Plan, ids, at, stays, state, along):
    """(logits, state) for the text ``ids[:, :at]``; ``along`` has entries for all positions."""
    if plan.cached:
        token = jax.lax.dynamic_slice_in_dim(ids, at - 1, 1, 1)
        logits, state = advance(model, token, at, stays, state, along)
        return last_logits(logits, -1), state
    seen = jnp.arange(ids.shape[1]) < at
    here = {k: _known(k, v, at, seen) for k, v in along.items()}
    keep = jnp.reshape(at - 1, 1) if model_steps.keeps(model) else None
    logits, _ = model_steps.run(
        model,
        "step",
        ids=ids,
        given=stays | here,
        count=None,
        keep=keep,
        use_cache=False,
        first=True,
    )
    return last_logits(logits, -1 if keep is not None else at - 1), state


def _known(name: str, value, at, seen):
    """Nothing is seen behind the text, and no position is later than its last one's.

    The longest position decides the frequencies of some rotary embeddings.
    """
    if name.endswith("attention_mask"):
        return value * seen
    last = jax.lax.dynamic_slice_in_dim(value, at - 1, 1, value.ndim - 1)
    return jnp.where(seen, value, last) if name.endswith("position_ids") else value


def _here(name: str, value, at, count: int):
    """A mask as a whole, of anything else the entries of the last ``count`` positions."""
    if name.endswith("attention_mask"):
        return value
    return jax.lax.dynamic_slice_in_dim(value, at - count, count, value.ndim - 1)


def _same(old, new):
    """``new`` if it has the structure, shapes and dtypes of ``old``."""
    shapes = lambda tree: [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]
    before: Any = jax.tree.structure(old)
    if before != jax.tree.structure(new) or shapes(old) != shapes(new):
        raise Unfit
    return jax.tree.map(lambda a, b: jax.lax.convert_element_type(b, a.dtype), old, new)


def extended(along: dict[str, Any], total: int):
    """Masks, positions and types of the prompt, for ``total`` positions.

    Later positions are seen, count on from the last one, and have the type of the last one (none
    for images).
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


def pick(model: Model, plan: Plan, picker: Picker, carry, logits, last):
    """The carry with one token more, picked from ``logits``."""
    carry = _room(plan, carry, logits)
    if plan.beams is None:
        return choose(plan, picker, carry, logits)
    carry = carry | {"lost": lost(carry, logits)}
    carry, rows = search.choose(plan.beams, plan.sample, picker, carry, logits, last)
    if carry["state"]:
        state = model_steps.run(model, "reorder", state=carry["state"], rows=rows)
        carry = carry | {"state": _same(carry["state"], state)}
    return carry


def _room(plan: Plan, carry, logits):
    """The carry with room for what is kept of every step."""
    kept = {"scores": plan.scores, "logits": plan.logits}
    rooms = {k: jnp.zeros((n, *logits.shape)) for k, n in kept.items() if n and k not in carry}
    return carry | rooms


def choose(plan: Plan, picker: Picker, carry, logits):
    """One token more for every row, the likeliest or a drawn one."""
    ids, at = carry["ids"], carry["at"]
    scores = guides.guided(carry["guide"], logits) if "guide" in carry else logits
    for process in picker.chain:
        scores = process(ids, at, scores)
    if plan.sample:
        rng, key = jax.random.split(carry["rng"])
        carry = carry | {"rng": rng}
        token = jax.random.categorical(key, scores, -1)
    else:
        token = likeliest(scores)
    token = jnp.where(idle(carry, picker), picker.pad, token).astype(ids.dtype)
    ids = jax.lax.dynamic_update_slice_in_dim(ids, token[:, None], at, 1)
    done = carry["done"] | (token[:, None] == picker.ends).any(1)
    for stop in picker.stops:
        done = done | stop(ids, at + 1)
    now = {"ids": ids, "at": at + 1, "done": done, "lost": lost(carry, logits)}
    return keep(carry, scores, logits) | now


def lost(carry, logits):
    """The prompts whose logits were NaN before they ended; two logits stand for all of them."""
    nan = jnp.isnan(logits[:, 0]) & jnp.isnan(logits[:, -1])
    return carry["lost"] | (nan.reshape(carry["done"].shape[0], -1).any(-1) & ~carry["done"])


def likeliest(scores):
    """The first of the largest, or a NaN, of each row: ``scores.argmax(-1)``.

    XLA:CPU's argmax looks at one number at a time. A maximum and the first place that holds it are
    two passes of whole vectors, a fifth of its time over 32,000 tokens.
    """
    high = scores.max(-1, keepdims=True)
    place = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)
    first = (scores == high) | (scores != scores)
    return jnp.where(first, place, scores.shape[-1] - 1).min(-1)


def idle(carry, picker: Picker):
    """The rows that have ended and are padded."""
    return carry["done"] & (picker.pad != UNPADDED)


def keep(carry, scores, logits):
    """The carry with the scores and logits of this step, where they are wanted."""
    for name, rows in (("scores", scores), ("logits", logits)):
        if name in carry:
            place = carry["at"] - carry["start"]
            kept = jax.lax.dynamic_update_index_in_dim(carry[name], rows, place, 0)
            carry = carry | {name: kept}
    return carry


def room(model: Model, plan: Plan, carry, stays, along):
    """The carry with room for scores, before there are any."""
    args = (carry["ids"], carry["at"], stays, carry["state"], along)
    return _room(plan, carry, logits_of.eval_shape(model, *args, plan=plan))


pick_first = Program(pick, static_argnames="plan")


@program(static_argnames="plan", donate_argnames="carry")
def decode(model: Model, carry, stays, along, until, last, picker, plan: Plan):
    """One position after the other before ``until``, of ``last``, or until every row is done."""

    def body(carry):
        logits, state = step(model, plan, carry["ids"], carry["at"], stays, carry["state"], along)
        if "guide" in carry:
            token = jax.lax.dynamic_slice_in_dim(carry["ids"], carry["at"] - 1, 1, 1)
            guide = guides.step(model, carry["guide"], token, advance, last_logits)
            carry = carry | {"guide": guide}
        return pick(model, plan, picker, carry | {"state": state}, logits, last)

    return jax.lax.while_loop(lambda c: (c["at"] < until) & ~c["done"].all(), body, carry)


@program(static_argnames="plan")
def logits_of(model: Model, ids, at, stays, state, along, plan: Plan):
    """The logits alone of one step, to compare."""
    return step(model, plan, ids, at, stays, state, along)[0]
