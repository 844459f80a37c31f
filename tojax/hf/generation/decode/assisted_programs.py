"""Speculative decoding: tokens are drafted, then the model reads all of them in one step.

A drafted token stays where it is the one that the model picks at this place itself, so the text is
the one that comes without drafts. That holds for drawn tokens, too: a place has one key whatever
was drafted, and the draft draws with it as well, so that distributions that are close to each other
draw the same token mostly.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from tojax.calls.program import Program, program
from tojax.hf.generation.decode import static_cache as caches
from tojax.hf.generation.decode.programs import Picker, Plan, advance, choose, idle, last_logits
from tojax.model import Model

KEPT = ("state", "draft", "blocks", "scores", "logits")  # of the carry, what no draft needs


def program_of(model: Model, source: Any) -> Program:
    """``decode`` with drafts of a smaller model's source, or of the text (None)."""
    programs, key = model.source.cache.notes, (decode, source)
    if key not in programs:
        static = "plan", "count", "ngram"
        run = partial(decode, source=source)
        programs[key] = Program(run, static_argnames=static, donate_argnames="carry")
    return programs[key]


def decode(
    model: Model,
    draft,
    carry,
    stays,
    along,
    until,
    last,
    picker: Picker,
    plan: Plan,
    count: int,
    ngram: int,
    source: Any,
):
    """Blocks of up to ``count`` drafted tokens and one more, until position ``until`` or later.

    ``draft`` holds the smaller model's arrays and arguments; without one (None) the drafts are what
    followed the text's last tokens, ``ngram`` at most, where they occurred before.
    """
    if draft is not None:
        draft = draft | {"model": Model(draft["params"], draft["buffers"], source)}

    def body(carry):
        at = carry["at"]
        if draft is None:
            guess = looked_up(carry["ids"], at, count, ngram)
        else:
            guess = drafted(draft, carry, picker, plan, count)
            carry = carry | {"draft": guess["state"]}
        block = jax.lax.dynamic_slice_in_dim(guess["ids"], at - 1, count + 1, 1)
        state = caches.rewind(_copy(carry["state"]), at - 1)
        logits, state = advance(model, block, at + count, stays, state, along)
        carry = carry | {"state": state, "blocks": carry["blocks"] + 1}
        return accepted(carry, logits, guess, last, picker, plan)

    return jax.lax.while_loop(lambda c: (c["at"] < until) & ~c["done"].all(), body, carry)


def drafted(draft, carry, picker: Picker, plan: Plan, count: int):
    """The carry of the smaller model after up to ``count`` tokens, fewer where it is unsure.

    Its cache has neither the last token nor, where all drafts were right, the one before.
    """
    start = carry["at"]

    def more(guess, tokens: int):
        at = guess["at"]
        new = jax.lax.dynamic_slice_in_dim(guess["ids"], at - tokens, tokens, 1)
        rest = draft["stays"], guess["state"], draft["along"]
        logits, state = advance(draft["model"], new, at, *rest)
        logits = last_logits(logits, -1)
        after = choose(plan, picker, _without(guess, "sure"), logits)
        token = jax.lax.dynamic_index_in_dim(after["ids"], at, 1)
        likely = jnp.take_along_axis(jax.nn.softmax(logits), token, 1)[:, 0]
        sure = ((likely >= draft["threshold"]) | guess["done"]).all()
        return after | {"state": state, "sure": sure}

    state = caches.rewind(_copy(carry["draft"]), start - 2)
    guess = more(_without(carry, *KEPT) | {"state": state}, 2)
    going = lambda g: g["sure"] & (g["at"] - start < count) & ~g["done"].all()
    return jax.lax.while_loop(going, lambda g: more(g, 1), guess)


def looked_up(ids, at, count: int, ngram: int):
    """What followed the first of the earlier places with the text's last tokens, the more the
    better; anything where there is none.
    """
    begin = jnp.zeros(len(ids), jnp.int32)
    for size in range(1, ngram + 1):
        tail = jax.lax.dynamic_slice_in_dim(ids, at - size, size, 1)
        places = jnp.arange(ids.shape[1] - size + 1)
        match = jnp.broadcast_to(places + size < at, (len(ids), len(places)))
        for i in range(size):
            match = match & (ids[:, i : i + len(places)] == tail[:, i : i + 1])
        begin = jnp.where(match.any(1), match.argmax(1) + size, begin)
    follow = jnp.take_along_axis(ids, begin[:, None] + jnp.arange(count), 1)
    return {"ids": jax.lax.dynamic_update_slice_in_dim(ids, follow, at, 1), "at": at + count}


def accepted(carry, logits, guess, last, picker: Picker, plan: Plan):
    """The carry with the model's own picks, as far as they are what was drafted, and one more."""
    start = carry["at"]
    apart = {k: v for k, v in carry.items() if k in ("state", "draft", "blocks")}

    def one(now):
        carry, at = now["carry"], now["carry"]["at"]
        carry = choose(plan, picker, carry, last_logits(logits, at - start))
        here = lambda ids: jax.lax.dynamic_index_in_dim(ids, at, 1, False)
        same = (here(carry["ids"]) == here(guess["ids"])) | idle(carry, picker)
        return {"carry": carry, "on": same.all() & (at < guess["at"])}

    going = lambda now: now["on"] & (now["carry"]["at"] < last) & ~now["carry"]["done"].all()
    now = {"carry": _without(carry, *apart), "on": jnp.bool_(True)}
    return jax.lax.while_loop(going, one, now)["carry"] | apart


@program()
def both_ways(model: Model, ids, at, stays, state, along):
    """The logits after two tokens from ``at`` on, read one by one and at once."""
    one = lambda i: jax.lax.dynamic_slice_in_dim(ids, at + i, 1, 1)
    _, then = advance(model, one(0), at + 1, stays, _copy(state), along)
    single, _ = advance(model, one(1), at + 2, stays, then, along)
    two = jax.lax.dynamic_slice_in_dim(ids, at, 2, 1)
    block, _ = advance(model, two, at + 2, stays, _copy(state), along)
    return last_logits(single, -1), last_logits(block, -1)


def _copy(tree):
    """The same arrays in objects of their own, as ``rewind`` writes to those it gets."""
    return jax.tree.map(lambda x: x, tree)


def _without(carry, *names: str):
    return {k: v for k, v in carry.items() if k not in names}
