"""Non-maximum suppression: the best box, then the best of those that overlap it little, and so
on.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

LEAST, NONE = np.float32(-np.inf), np.float32(0)


def overlaps(boxes, i):
    """Returns intersection over union of one box with all; corners lie in any order."""
    low, high = jnp.minimum(boxes[:, :2], boxes[:, 2:]), jnp.maximum(boxes[:, :2], boxes[:, 2:])
    area = jnp.prod(high - low, -1)
    both = jnp.maximum(jnp.minimum(high, high[i]) - jnp.maximum(low, low[i]), 0).prod(-1)
    union = area + area[i] - both
    real = (area > 0) & (area[i] > 0)
    return jnp.where(real, both / jnp.where(real, union, 1), 0)


def suppress(similar, scores, count, most, least, sigma=NONE):
    """Returns (indices, scores, number of valid ones), with zeros behind the valid ones.

    ``similar(i)`` tells how similar all boxes are to one. Boxes above ``most`` go; with ``sigma``
    none goes, and scores fall with their similarity.
    """
    soft = sigma > 0
    scale = jnp.where(soft, -0.5 / jnp.where(soft, sigma, 1), 0)

    def step(scores, _):
        i = jnp.argmax(scores)
        near = similar(i)
        lower = jnp.where(soft | (near <= most), scores * jnp.exp(scale * near * near), LEAST)
        lower = jnp.where(scores == LEAST, LEAST, lower).at[i].set(LEAST)
        return jnp.where(lower > least, lower, LEAST), (i.astype(np.int32), scores[i])

    start = jnp.where(scores > least, scores, LEAST)
    _, (indices, best) = lax.scan(step, start, length=min(count, len(scores)))
    valid = best > LEAST
    out = [jnp.where(valid, x, np.zeros((), x.dtype)) for x in (indices, best)]
    padding = count - len(indices)
    return *[jnp.pad(x, (0, padding)) for x in out], valid.sum(dtype=np.int32)
