"""Attention in blocks of rows: what no kernel takes. Scores of one block are there at a time."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.numerics.attention import plain
from anyjax.numerics.attention.form import Form

ROWS = 512  # of a block
LARGE = 2**24  # scores; fewer of them stand at once


def attend(form: Form, query, key, value, *masks):
    """``plain.attend``, a block of rows at a time."""
    count = _count(query, key)
    if count == 1:
        return plain.attend(form, query, key, value, *masks)

    def step(first, block):
        query, masks = block
        return first + ROWS, plain.attend(form, query, key, value, *masks, first=first)

    blocks = _split(query, count), [_split(x, count) for x in masks]
    _, (out, sums) = lax.scan(step, jnp.int32(0), blocks)
    length = query.shape[-2]
    return _joined(out, length), _joined(sums[..., None], length)[..., 0]


def dropped(form: Form, drop: Callable, query, key, value, *masks):
    """Returns the result where ``drop(weights, block)`` takes the place of weights, a block of rows
    at a time; gradients compute a block's weights again.
    """
    count = _count(query, key)
    if count == 1:
        return plain.result(form, query, key, value, *masks, drop=drop)

    @jax.checkpoint
    def step(block, rows):
        query, masks = rows
        drop_rows = lambda weights: drop(weights, block)
        first = block * ROWS
        out = plain.result(form, query, key, value, *masks, first=first, drop=drop_rows)
        return block + 1, out

    rows = _split(query, count), [_split(x, count) for x in masks]
    return _joined(lax.scan(step, jnp.int32(0), rows)[1], query.shape[-2])


def backward(form: Form, query, key, value, masks, out, sums, cotangent, active=()):
    """``plain.backward``, a block of rows at a time."""
    length = query.shape[-2]
    count = _count(query, key)
    if count == 1:
        return plain.backward(form, query, key, value, masks, out, sums, cotangent, active)

    def step(carry, block):
        first, of_key, of_value = carry
        query, masks, out, sums, cotangent = block
        sums = sums[..., 0]
        of = plain.backward(form, query, key, value, masks, out, sums, cotangent, active, first)
        return (first + ROWS, of_key + of[1], of_value + of[2]), (of[0], of[3])

    rows = out, sums[..., None], cotangent
    blocks = _split(query, count), [_split(x, count) for x in masks]
    blocks = *blocks, *(_split(x, count) for x in rows)
    zeros = [jnp.zeros(x.shape, sums.dtype) for x in (key, value)]
    (_, *of), (of_query, of_bias) = lax.scan(step, (jnp.int32(0), *zeros), blocks)
    return _joined(of_query, length), *of, None if of_bias is None else _joined(of_bias, length)


def _count(query, key) -> int:
    """Returns how many blocks of rows there are."""
    batch, heads, length, _ = query.shape
    few = batch * heads * length * key.shape[-2] <= LARGE
    return 1 if few or length <= ROWS else -(-length // ROWS)


def _split(x, count):
    """[..., length, width] to [blocks, ..., rows, width]; what has one row has it in each block."""
    length = x.shape[-2]
    if length == 1:
        return jnp.broadcast_to(x, (count, *x.shape))
    pads = [(0, 0)] * (x.ndim - 2) + [(0, count * ROWS - length), (0, 0)]
    x = jnp.pad(x, pads).reshape(*x.shape[:-2], count, ROWS, x.shape[-1])
    return jnp.moveaxis(x, -3, 0)


def _joined(x, length):
    x = jnp.moveaxis(x, 0, -3)
    return x.reshape(*x.shape[:-3], -1, x.shape[-1])[..., :length, :]
