"""``flex_attention``: the functions of single scores and positions are mapped by ``jax.vmap``."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import torch
from jax import lax

from anyjax.numerics.attention import pairs
from anyjax.torch.control_flow.region import Closed
from anyjax.torch.core.dtypes import TO_TORCH
from anyjax.torch.core.lifting import array_of, lift
from anyjax.torch.core.tensor import JaxTensor

ROW = torch.zeros((), dtype=torch.int64)


def mapped(function, first):
    """``function(first, batch, head, query, key)`` of numbers over whole axes; ``first`` is 0 where
    its first argument has all four axes, None where it has none.
    """
    for axis in (3, 2, 1, 0):
        function = jax.vmap(function, (first, *(0 if i == axis else None for i in range(4))))
    return function


def flex_attention(
    mode, query, key, value, score_mod, block_mask, scale, kernel_options,
    score_mod_other_buffers=(), mask_mod_other_buffers=(),
):  # fmt: skip
    """(result, log2 of the sums of exponentials, largest scores in the same unit), as torch's dense
    form: float32 scores at least, zeros for a row that is masked out.
    """
    q, k, v = (array_of(x) for x in (query, key, value))
    every = lambda x: jnp.broadcast_to(
        jnp.repeat(x, q.shape[1] // x.shape[1], 1), (*q.shape[:2], *x.shape[2:])
    )
    wide = jnp.promote_types(q.dtype, jnp.float32)
    scores = pairs(q.astype(wide), every(k).astype(wide), (1, 1)) * scale
    places = [jnp.arange(n) for n in scores.shape]
    number = torch.zeros((), dtype=TO_TORCH[scores.dtype])
    modify = Closed(mode, lambda *x: score_mod(*x, *score_mod_other_buffers), [number, *[ROW] * 4])
    keep = Closed(mode, lambda *x: block_mask[-1](*x[1:], *mask_mod_other_buffers), modify.leaves)
    attended = mapped(lambda *x: keep(*x)[0], None)(wide.type(0), *places)
    scores = mapped(lambda *x: modify(*x)[0].astype(wide), 0)(scores, *places)
    scores = jnp.where(attended, scores, -jnp.inf)
    high = lax.stop_gradient(scores.max(-1, keepdims=True, initial=jnp.finfo(wide).min))
    exp = jnp.exp(scores - high)
    total = exp.sum(-1, keepdims=True)
    weights = (exp / jnp.maximum(total, 0.5)).astype(q.dtype)
    sums = (jnp.log(total) + high)[..., 0] / math.log(2)
    out = pairs(weights, every(v).astype(q.dtype), (1, 0))
    results = (out, sums, scores.max(-1) / math.log(2))
    return tuple(lift(JaxTensor(x)) for x in results)
