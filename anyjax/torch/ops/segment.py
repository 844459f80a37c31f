"""Reductions of consecutive stretches of an axis."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import torch
from jax import lax

from anyjax.errors import Unsupported
from anyjax.torch.core.schema import lowers

START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


def reduce_rows(data, ends, first, how, initial):
    """Rows [n, ...] to segments [count, ...]; segment i ends before row ``ends[i]``."""
    row, count = jnp.arange(data.shape[0]), ends.shape[0]
    segment = jnp.where(row < first, count, jnp.searchsorted(ends, row, side="right"))
    start = START[how] if initial is None else initial
    if how in ("sum", "mean"):
        out = jax.ops.segment_sum(data, segment, count) + start
        size = jnp.diff(ends, prepend=first).astype(data.dtype)
        size = lax.expand_dims(size, range(1, data.ndim))
        empty = math.nan if initial is None else start
        return out if how == "sum" else jnp.where(size == 0, empty, out / jnp.maximum(size, 1))
    member = lax.expand_dims(segment == jnp.arange(count)[:, None], range(2, data.ndim + 1))
    return getattr(jnp, how)(jnp.where(member, data, START[how]), 1, initial=start)


@lowers(torch.ops.aten.segment_reduce)
def segment_reduce(data, reduce, lengths, indices, offsets, axis, unsafe, initial):
    """jax's segment_max has no gradient; torch shares it among equals, as jnp.max does."""
    if indices is not None:
        raise Unsupported("segment_reduce with indices", why="torch has no kernel for it either")
    if lengths is not None:
        ends, first = jnp.cumsum(lengths, -1), jnp.zeros_like(lengths[..., 0])
    else:
        ends, first = offsets[..., 1:], offsets[..., 0]
    function = lambda rows, ends, first: reduce_rows(rows, ends, first, reduce, initial)
    for _ in range(axis % data.ndim):
        function = jax.vmap(function)
    return function(data, ends, first)
