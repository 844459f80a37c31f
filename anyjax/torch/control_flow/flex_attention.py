"""``flex_attention``: the functions of single scores and positions are mapped by ``jax.vmap``."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import torch

from anyjax.numerics.attention import attend, form_of, is_large, pairs, row_weights
from anyjax.torch.control_flow.region import Closed
from anyjax.torch.core.dtypes import TO_TORCH
from anyjax.torch.core.lifting import array_of, lift
from anyjax.torch.core.tensor import JaxTensor

ROW = torch.zeros((), dtype=torch.int64)
LIMITS: dict[tuple, dict | None] = {}  # of masks by their programs


def mapped(function, first):
    """``function(first, batch, head, query, key)`` of numbers over whole axes; ``first`` is 0 where
    its first argument has all four axes, None where it has none.
    """
    for axis in (3, 2, 1, 0):
        function = jax.vmap(function, (first, *(0 if i == axis else None for i in range(4))))
    return function


def is_same(modify, score):
    """Returns whether a function of a score and its place returns the score as it is."""
    jaxpr = jax.make_jaxpr(lambda *x: modify(*x)[0])(score, *[array_of(ROW)] * 4).jaxpr
    return jaxpr.outvars[0] is jaxpr.invars[0]


def limits_of(keep, score, length, source):
    """Returns the limits of a form whose rows see what is kept. None where that depends on more
    than rows and columns, where no form has it, and where a row sees nothing.
    """
    from anyjax.jaxprs import Literal, jaxpr_as_fun  # which load Pallas

    closed = jax.make_jaxpr(lambda *x: keep(score, *x)[0])(*[array_of(ROW)] * 4)
    read = [x for eqn in closed.eqns for x in eqn.invars if not isinstance(x, Literal)]
    traced = any(isinstance(x, jax.core.Tracer) for x in closed.consts)
    if traced or {*closed.jaxpr.invars[:2]} & {*read}:
        return None
    consts = (np.asarray(x).tobytes() for x in closed.consts)
    key = str(closed.jaxpr), *consts, length, source
    if len(LIMITS) == 64:
        LIMITS.clear()
    if key not in LIMITS:
        LIMITS[key] = limits_of_pairs(jaxpr_as_fun(closed), length, source)
    return LIMITS[key]


def limits_of_pairs(pair, length, source):
    """Returns ``limits_of`` a function of a row and a column."""

    def row(i):
        columns = jnp.arange(source)
        seen = jax.vmap(lambda j: pair(0, 0, i, j)[0])(columns)
        first = jnp.where(seen, columns, source).min()
        return first, jnp.where(seen, columns, -1).max(), seen.sum()

    with jax.ensure_compile_time_eval():
        first, last, count = map(np.asarray, jax.jit(jax.vmap(row))(jnp.arange(length)))
    places = np.arange(length)
    shift, before = int(last[0]), first[-1] > 0
    window = length + shift - int(first[-1]) if before else None
    fits = first == (np.maximum(places + shift + 1 - window, 0) if before else 0)
    fits &= last == np.minimum(places + shift, source - 1)
    if not (fits & (count == last - first + 1) & (count > 0)).all():
        return None
    causal = before or shift < source - 1
    return {"causal": True, "shift": shift, "window": window} if causal else {}


def flex_attention(
    mode, query, key, value, score_mod, block_mask, scale, kernel_options,
    score_mod_other_buffers=(), mask_mod_other_buffers=(),
):  # fmt: skip
    """(result, log2 of the sums of exponentials, largest scores in the same unit), as torch's dense
    form: float32 scores at least, zeros for a row that is masked out.
    """
    q, k, v = (array_of(x) for x in (query, key, value))
    wide = jnp.promote_types(q.dtype, jnp.float32)
    number = torch.zeros((), dtype=TO_TORCH[wide])
    modify = Closed(mode, lambda *x: score_mod(*x, *score_mod_other_buffers), [number, *[ROW] * 4])
    keep = Closed(mode, lambda *x: block_mask[-1](*x[1:], *mask_mod_other_buffers), modify.leaves)
    alone = not (kernel_options.get("OUTPUT_LOGSUMEXP", 1) or kernel_options.get("OUTPUT_MAX", 1))
    if alone and is_large(q, k) and is_same(modify, wide.type(0)):
        limits = limits_of(keep, wide.type(0), q.shape[2], k.shape[2])
        if limits is not None:
            k, v = (jnp.broadcast_to(x, (q.shape[0], *x.shape[1:])) for x in (k, v))
            out = attend(form_of(q, scale, **limits), q, k, v)
            nothing = jnp.full(q.shape[:3], jnp.nan, wide)  # nobody asked for it
            return tuple(lift(JaxTensor(x)) for x in (out, nothing, nothing))
    every = lambda x: jnp.broadcast_to(
        jnp.repeat(x, q.shape[1] // x.shape[1], 1), (*q.shape[:2], *x.shape[2:])
    )
    scores = pairs(q.astype(wide), every(k).astype(wide), (1, 1)) * scale
    places = [jnp.arange(n) for n in scores.shape]
    attended = mapped(lambda *x: keep(*x)[0], None)(wide.type(0), *places)
    scores = mapped(lambda *x: modify(*x)[0].astype(wide), 0)(scores, *places)
    scores = jnp.where(attended, scores, -jnp.inf)
    weights, total, high = row_weights(scores)
    sums = (jnp.log(total) + high)[..., 0] / math.log(2)
    out = pairs(weights.astype(q.dtype), every(v).astype(q.dtype), (1, 0))
    results = (out, sums, scores.max(-1) / math.log(2))
    return tuple(lift(JaxTensor(x)) for x in results)
