"""Beam search on buffers of fixed shape, step for step what transformers does.

Shapes: batch, beams ``k``, candidates ``n`` (so many that ``k`` of them are no end token),
positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

NEVER = -1.0e9  # transformers' score of what must not be chosen


@dataclass(frozen=True)
class Beams:
    """The options of beam search that a program is compiled for.

    Attributes:
      count: beams of each row.
      kept: candidates of each row and step.
      early_stopping: True, False or "never", as in transformers.
      fill: the token behind the end of a sequence.
    """

    count: int
    candidates: int
    early_stopping: bool | str
    fill: int


def initial_beams(beams: Beams, ids: np.ndarray, length: int, penalty: float) -> dict[str, Any]:
    """Returns the loop's carry beside ids and cache; ``ids`` are [batch * k, positions]."""
    batch, k = len(ids) // beams.count, beams.count
    ids[:, length:] = beams.fill
    running = np.full((batch, k), NEVER, np.float32)
    running[:, 0] = 0
    return {
        "running": running,
        "best": np.full((batch, k), NEVER, np.float32),
        "sequences": ids.reshape(batch, k, -1).copy(),
        "finished": np.zeros((batch, k), bool),
        "improvable": np.ones((batch, 1), bool),
        "came": np.full((batch, k, ids.shape[1]), -1, np.int32),
        "came_running": np.full((batch, k, ids.shape[1]), -1, np.int32),
        "start": np.int32(length),
        "penalty": np.float32(penalty),
    }


def choose_beams(beams: Beams, sample: bool, picker: Any, carry, logits, last):
    """Returns (the carry with one token more, the rows of the cache to go on with)."""
    ids, at = carry["ids"], carry["at"]
    batch, k = carry["running"].shape
    scores = jax.nn.log_softmax(logits, -1)
    for process in picker.chain:
        scores = process(ids, at, scores)
    size = scores.shape[-1]
    total = (scores.reshape(batch, k, size) + carry["running"][:, :, None]).reshape(batch, -1)
    if sample:
        rng, key = jax.random.split(carry["rng"])
        carry = carry | {"rng": rng}
        noise = jax.random.gumbel(key, total.shape)  # the top ones: a draw without replacement
        index = jax.lax.top_k(total + noise, beams.candidates)[1]
        top = jnp.take_along_axis(total, index, 1)
    else:
        top, index = jax.lax.top_k(total, beams.candidates)
    beam, token = index // size, (index % size).astype(ids.dtype)
    texts = _take(ids.reshape(batch, k, -1), beam)
    texts = jax.lax.dynamic_update_index_in_dim(texts, token, at, 2)
    rows = (beam + jnp.arange(batch)[:, None] * k).astype(jnp.int32)
    came = jax.lax.dynamic_update_index_in_dim(
        _take(carry["came_running"], beam), rows, at - carry["start"], 2
    )
    ends = (token[..., None] == picker.ends).any(-1) | (at + 1 >= last)
    flat = texts.reshape(batch * beams.candidates, -1)
    for stop in picker.stops:
        ends = ends | stop(flat, at + 1).reshape(ends.shape)
    going = jax.lax.top_k(top + ends * NEVER, k)[1]
    running = jnp.take_along_axis(top + ends * NEVER, going, 1)
    new = _best_finished(beams, carry, texts, came, top, ends)
    came_running = _take(came, going)
    for name, value in (("scores", scores), ("logits", logits)):
        if name in carry:
            step = at - carry["start"]
            records = jax.lax.dynamic_update_index_in_dim(carry[name], value, step, 0)
            carry = carry | {name: records}
    advanced = {
        "ids": _take(texts, going).reshape(ids.shape),
        "running": running,
        "came_running": came_running,
        "at": at + 1,
    }
    carry = carry | new | advanced
    improvable = carry["improvable"] & _improvable(beams, carry, last)
    open_ = improvable.any() & ~ends.all()
    if beams.early_stopping is True:
        open_ = open_ & ~carry["finished"].all()
    done = jnp.broadcast_to(~open_, carry["done"].shape)
    order = jax.lax.dynamic_index_in_dim(came_running, at - carry["start"], 2, False)
    return carry | {"improvable": improvable, "done": done}, order.reshape(-1)


def _take(array, beam):
    return jnp.take_along_axis(array, beam.reshape(*beam.shape, *[1] * (array.ndim - 2)), 1)


def _best_finished(beams: Beams, carry, texts, came, top, ends):
    """Returns the best finished sequences so far, with those of this step."""
    first = jnp.arange(beams.candidates) < beams.count
    just = ends & first
    top = top / jnp.power(carry["at"] + 1.0 - carry["start"], carry["penalty"])
    if beams.early_stopping is True:
        top = top + carry["finished"].all(1, keepdims=True) * NEVER
    top = top + ~carry["improvable"] * NEVER + ~just * NEVER
    join = lambda name, new: jnp.concatenate([carry[name], new], 1)
    scores = join("best", top)
    index = jax.lax.top_k(scores, beams.count)[1]
    return {
        "sequences": _take(join("sequences", texts), index),
        "best": _take(scores, index),
        "came": _take(join("came", came), index),
        "finished": _take(join("finished", just), index),
    }


def _improvable(beams: Beams, carry, last):
    """Returns whether a running beam can still beat the worst finished one."""
    penalty = carry["penalty"]
    generated = carry["at"] - carry["start"]
    length = generated
    if beams.early_stopping == "never":
        length = jnp.where(penalty > 0, last - carry["start"], generated)
    best = carry["running"][:, :1] / jnp.power(length.astype(jnp.float32), penalty)
    worst = jnp.where(carry["finished"], carry["best"].min(1, keepdims=True), NEVER)
    return (best > worst).any(-1, keepdims=True)


def best_sequences(carry, answers: int, length: int):
    """Returns (sequences, scores, beam of each token) of the best ``answers`` of each row."""
    best = lambda name: np.asarray(carry[name])[:, :answers]
    sequences, came = (x.reshape(-1, x.shape[-1]) for x in (best("sequences"), best("came")))
    count = int((came >= 0).sum(1).max())
    return sequences[:, : length + count], best("best").reshape(-1), came[:, :count]
