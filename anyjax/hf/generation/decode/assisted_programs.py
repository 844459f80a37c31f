"""Speculative decoding: tokens are drafted, then the model reads all of them in one step.

A drafted token stays if the model picks the same one at its position, so the text is the same as
without drafts. That holds for drawn tokens, too: a position has one key whatever was drafted. The
draft draws with this key as well, so that similar distributions mostly draw the same token.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from anyjax.calls.program import Program, program
from anyjax.hf.generation.decode import static_cache
from anyjax.hf.generation.decode.programs import (
    Picker,
    Plan,
    advance,
    choose_tokens,
    ended_rows,
    last_logits,
)
from anyjax.model import Model

if TYPE_CHECKING:
    from anyjax.source import Source

# Entries of the carry that the drafting loop leaves out.
NOT_FOR_DRAFTS = ("state", "draft", "blocks", "scores", "logits")


def program_of(model: Model, source: Any) -> Program:
    """Returns the program of ``decode`` with drafts of a smaller model, or of the text (None)."""
    notes, key = model.source.cache.notes, (decode, source)
    if key not in notes:
        static = "plan", "count", "ngram"
        function = partial(decode, source=source)
        notes[key] = Program(function, static_argnames=static, donate_argnames="carry")
    return notes[key]


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
    source: Source,
):
    """Decodes blocks of up to ``count`` drafted tokens and one more, up to ``until`` or later.

    ``draft`` holds the smaller model's arrays and arguments. Without one (None) a draft is what
    followed an earlier occurrence of the text's last tokens, ``ngram`` of them at most.
    """
    if draft is not None:
        draft = draft | {"model": Model(draft["params"], draft["buffers"], source)}

    def body(carry):
        at = carry["at"]
        if draft is None:
            guess = lookup_drafts(carry["ids"], at, count, ngram)
        else:
            guess = model_drafts(draft, carry, picker, plan, count)
            carry = carry | {"draft": guess["state"]}
        block = jax.lax.dynamic_slice_in_dim(guess["ids"], at - 1, count + 1, 1)
        state = static_cache.rewind(_copy(carry["state"]), at - 1)
        logits, state = advance(model, block, at + count, stays, state, along)
        carry = carry | {"state": state, "blocks": carry["blocks"] + 1}
        return accept_drafts(carry, logits, guess, last, picker, plan)

    return jax.lax.while_loop(lambda c: (c["at"] < until) & ~c["done"].all(), body, carry)


def model_drafts(draft, carry, picker: Picker, plan: Plan, count: int):
    """Returns the smaller model's carry after up to ``count`` tokens, fewer where it is unsure.

    Its cache lacks the last token and, where all drafts were right, the one before it.
    """
    start = carry["at"]

    def draft_one(guess, tokens: int):
        at = guess["at"]
        new = jax.lax.dynamic_slice_in_dim(guess["ids"], at - tokens, tokens, 1)
        cache_args = draft["stays"], guess["state"], draft["along"]
        logits, state = advance(draft["model"], new, at, *cache_args)
        logits = last_logits(logits, -1)
        picked = choose_tokens(plan, picker, _without(guess, "sure"), logits)
        token = jax.lax.dynamic_index_in_dim(picked["ids"], at, 1)
        likely = jnp.take_along_axis(jax.nn.softmax(logits), token, 1)[:, 0]
        sure = ((likely >= draft["threshold"]) | guess["done"]).all()
        return picked | {"state": state, "sure": sure}

    state = static_cache.rewind(_copy(carry["draft"]), start - 2)
    guess = draft_one(_without(carry, *NOT_FOR_DRAFTS) | {"state": state}, 2)
    going = lambda g: g["sure"] & (g["at"] - start < count) & ~g["done"].all()
    return jax.lax.while_loop(going, lambda g: draft_one(g, 1), guess)


def lookup_drafts(ids, at, count: int, ngram: int):
    """Returns a draft: what followed the first earlier occurrence of the text's last tokens.

    More matching tokens take precedence; without any match the draft is arbitrary.
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


def accept_drafts(carry, logits, guess, last, picker: Picker, plan: Plan):
    """Returns the carry with the model's own picks while they equal the draft, and one more."""
    start = carry["at"]
    untouched = {k: v for k, v in carry.items() if k in ("state", "draft", "blocks")}

    def pick_one(progress):
        carry, at = progress["carry"], progress["carry"]["at"]
        carry = choose_tokens(plan, picker, carry, last_logits(logits, at - start))
        token_at = lambda ids: jax.lax.dynamic_index_in_dim(ids, at, 1, False)
        same = (token_at(carry["ids"]) == token_at(guess["ids"])) | ended_rows(carry, picker)
        return {"carry": carry, "on": same.all() & (at < guess["at"])}

    going = lambda progress: (
        progress["on"] & (progress["carry"]["at"] < last) & ~progress["carry"]["done"].all()
    )
    progress = {"carry": _without(carry, *untouched), "on": jnp.bool_(True)}
    return jax.lax.while_loop(going, pick_one, progress)["carry"] | untouched


@program()
def compare_blocks(model: Model, ids, at, stays, state, along):
    """Returns the logits after two tokens from ``at`` on, read in two steps and in one."""
    token_at = lambda i: jax.lax.dynamic_slice_in_dim(ids, at + i, 1, 1)
    _, state_between = advance(model, token_at(0), at + 1, stays, _copy(state), along)
    one_by_one, _ = advance(model, token_at(1), at + 2, stays, state_between, along)
    block_ids = jax.lax.dynamic_slice_in_dim(ids, at, 2, 1)
    block, _ = advance(model, block_ids, at + 2, stays, _copy(state), along)
    return last_logits(one_by_one, -1), last_logits(block, -1)


def _copy(tree):
    """Returns the same arrays in new objects: ``rewind`` writes to its argument."""
    return jax.tree.map(lambda x: x, tree)


def _without(carry, *names: str):
    return {k: v for k, v in carry.items() if k not in names}
