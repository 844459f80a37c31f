"""Running sums, products and log-sums."""

from __future__ import annotations

import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import Static, table


def _running(function, start):
    """``start`` is the first element of an exclusive one."""

    def lowering(x, axis: Static, exclusive, reverse):
        along = int(axis) % x.ndim
        if exclusive:
            edges = [(0, 0, 0)] * x.ndim
            edges[along] = (-1, 1, 0) if reverse else (1, -1, 0)
            x = lax.pad(x, np.asarray(start, x.dtype), edges)
        return function(x, along, reverse)

    return lowering


table.update(
    {
        "Cumprod": _running(lax.cumprod, 1),
        "Cumsum": _running(lax.cumsum, 0),
        "CumulativeLogsumexp": _running(lax.cumlogsumexp, -np.inf),
    }
)
