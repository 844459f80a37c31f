"""Putting an array together from parts that say where they belong."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tojax.tensorflow.core.known import as_jax, known
from tojax.tensorflow.core.schema import Known, lowers


@lowers("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(indices: Known, data: Known):
    """A row that no index names is 0; of several with the same index the last one counts."""
    indices = [known(x, "indices of DynamicStitch") for x in indices]
    rows = [jnp.reshape(as_jax(x), (i.size, *x.shape[i.ndim :])) for i, x in zip(indices, data)]
    rows, at = jnp.concatenate(rows), np.concatenate([np.ravel(i) for i in indices])
    count = int(at.max(initial=-1)) + 1
    last = np.full(count, -1)
    last[at] = np.arange(len(at))
    out = rows[np.maximum(last, 0)] if len(at) else rows
    holes = np.reshape(last < 0, (-1, *[1] * (out.ndim - 1)))
    return jnp.where(holes, 0, out).astype(out.dtype) if holes.any() else out
