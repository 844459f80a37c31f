"""Attention as a formula, with all scores at once: what CPUs compute, and what kernels are
compared with.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from anyjax.numerics.attention.form import Form


def pairs(a, b, dims, dtype=None):
    """Matrix products over leading dimensions, which broadcast; ``dims`` are contracted."""
    lead = lax.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (
        x if x.shape[:-2] == lead else jnp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b)
    )
    batch = tuple(range(len(lead)))
    dims = ((len(lead) + dims[0],), (len(lead) + dims[1],))
    return lax.dot_general(a, b, (dims, (batch, batch)), preferred_element_type=dtype)


def row_weights(scores):
    """Returns (softmax of the rows, sums of exponentials, largest scores); a row that is masked out
    entirely, of -inf, gives zeros.
    """
    # The maximum is finite, so that exp(-inf - high) is 0; the sum is at least 1 elsewhere. (With
    # jnp's initial= the lowest number would be a step of its own, and none of this one kernel.)
    wide, last = scores.dtype, scores.ndim - 1
    lowest = wide.type(jnp.finfo(wide).min)
    high = lax.reduce(lax.stop_gradient(scores), lowest, lax.max, (last,))[..., None]
    exp = lax.exp(lax.sub(scores, high))
    total = lax.expand_dims(lax.reduce_sum(exp, (last,)), (last,))
    return lax.div(exp, lax.max(total, wide.type(0.5))), total, high


def fold(x, heads):
    """Query heads that share a key head become its rows: [..., heads, length * group, width].

    Those of a position stand beside each other, so that a length can be divided over devices.
    """
    if x.ndim == 2 or x.shape[-3] == heads:  # as they are
        return x
    x = x.reshape(*x.shape[:-3], heads, -1, *x.shape[-2:]).swapaxes(-3, -2)
    return x.reshape(*x.shape[:-3], -1, x.shape[-1])


def unfold(x, length):
    """The inverse of ``fold``."""
    if x.shape[-2] == length:
        return x
    x = x.reshape(*x.shape[:-2], length, -1, x.shape[-1]).swapaxes(-3, -2)
    return x.reshape(*x.shape[:-4], -1, *x.shape[-2:])


def seen(form: Form, length, source, first=0):
    """Returns which columns a row sees by its position, None for all of them."""
    if not form.causal:
        return None
    rows, columns = (lax.broadcasted_iota(jnp.int32, (length, source), i) for i in (0, 1))
    if form.shift or not isinstance(first, int) or first:
        rows += first + form.shift
    inside = rows >= columns
    return inside if form.window is None else inside & (columns > rows - form.window)


def bias_of(mask, dtype):
    """Returns what is added to scores; a mask of bool becomes 0 and -inf.

    Masks are added, as torch does: XLA:CPU makes one kernel of product, addition, maximum and
    exponential, which a selection in their midst would be four of.
    """
    if mask is None or mask.dtype != bool:
        return mask
    return jnp.where(mask, dtype.type(0), dtype.type(-jnp.inf))


def scores_of(form: Form, query, key, *masks, first=0):
    """Returns (scores of folded heads in float32 at least, the same before the cap).

    Args:
      query: [batch, heads, length, width].
      key: [batch, heads of keys, source, width].
      masks: of bool, or what is added; they broadcast to [batch, heads, length, source].
      first: the position of the first row.
    """
    length, source = query.shape[-2], key.shape[-2]
    wide = jnp.promote_types(query.dtype, jnp.float32)
    heads = key.shape[-3] if key.ndim > 2 else 1
    inner = lax.mul(pairs(fold(query, heads), key, (1, 1), wide), wide.type(form.scale))
    scores = inner if form.cap is None else jnp.tanh(inner / form.cap) * wide.type(form.cap)
    for mask in (seen(form, length, source, first), *masks):
        if mask is not None:
            bias = bias_of(mask, wide)
            scores += _folded(bias, query.shape, heads)
    return scores, inner


def _folded(mask, shape, heads):
    """Returns a mask or bias in the order of folded heads: [..., key heads, rows, source]."""
    if len(shape) == 2 or shape[-3] == heads:
        return mask
    lead = mask.shape[:-3] if mask.ndim > 3 else ()
    return fold(jnp.broadcast_to(mask, (*lead, *shape[-3:-1], mask.shape[-1])), heads)


def attend(form: Form, query, key, value, *masks, first=0, drop=None):
    """Returns (result, log of the sum of exponentials of each row); both of [..., heads, length].

    ``drop`` is what happens to the weights before they are used.
    """
    out, total, high = _attend(form, query, key, value, masks, first, drop)
    sums = lax.log(lax.max(total, total.dtype.type(0.5))) + high
    return out, unfold(sums, query.shape[-2])[..., 0]


def result(form: Form, query, key, value, *masks, first=0, drop=None):
    """Returns the result of ``attend`` alone."""
    return _attend(form, query, key, value, masks, first, drop)[0]


def _attend(form, query, key, value, masks, first, drop):
    scores, _ = scores_of(form, query, key, *masks, first=first)
    weights, total, high = row_weights(scores)
    weights = weights.astype(value.dtype)
    out = pairs(weights if drop is None else drop(weights), value, (1, 0))
    return unfold(out, query.shape[-2]), total, high


def backward(form: Form, query, key, value, masks, out, sums, cotangent, active=(), first=0):
    """Returns the cotangents of query, key, value, and the scores before masks are added; of the
    last one None where no mask is ``active``. Weights are computed again from sums.
    """
    heads, length = key.shape[-3] if key.ndim > 2 else 1, query.shape[-2]
    scores, inner = scores_of(form, query, key, *masks, first=first)
    wide = scores.dtype
    if any(x.dtype != bool for x in masks):  # a large number in all scores absorbs the logarithm
        weights = row_weights(scores)[0]
    else:
        weights = lax.exp(scores - fold(sums[..., None], heads))
    cotangent = fold(cotangent, heads)
    through = (fold(out, heads).astype(wide) * cotangent.astype(wide)).sum(-1, keepdims=True)
    of_value = pairs(weights.astype(value.dtype), cotangent, (0, 0), wide)
    of_bias = weights * (pairs(cotangent, value, (1, 1), wide) - through)
    of_scores = of_bias
    if form.cap is not None:
        of_scores = of_bias * (1 - jnp.square(jnp.tanh(inner / form.cap)))
    narrow = (of_scores * wide.type(form.scale)).astype(query.dtype)
    of_query = unfold(pairs(narrow, key, (1, 0)), length)
    of_key = pairs(narrow, fold(query, heads), (0, 0), wide)
    return of_query, of_key, of_value, unfold(of_bias, length) if any(active[3:]) else None
