"""Products and weights of attention."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax


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
    total = exp.sum(-1, keepdims=True)
    return lax.div(exp, lax.max(total, wide.type(0.5))), total, high
