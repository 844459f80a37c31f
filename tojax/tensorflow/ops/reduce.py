"""Sums and the like over axes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.dtypes import canonical
from tojax.tensorflow.core.schema import Static, table
from tojax.tensorflow.ops.math import is_exact


def axes(x, indices) -> tuple[int, ...]:
    """Axes counted from the front, each once."""
    return tuple(sorted({int(i) % x.ndim for i in np.ravel(indices)}))


def _reducing(function):
    """``function(x, axes)`` as a lowering."""

    def lowering(input, axis: Static, /, keep_dims):
        along = axes(input, axis)
        if not along:
            return function(input, along)
        out = function(input, along)
        return lax.expand_dims(out, along) if keep_dims else out

    return lowering


def mean(x, along):
    """Of integers, too, rounded towards 0; their sum is as wide as JAX's integers are."""
    if not is_exact(x):
        return jnp.mean(x, along)
    count = np.prod([x.shape[a] for a in along], initial=1)
    total = jnp.sum(x, along, dtype=canonical(np.int64))
    return lax.div(total, total.dtype.type(count)).astype(x.dtype)


def euclidean_norm(x, along):
    squares = jnp.sum((x * jnp.conj(x)), along, dtype=x.dtype)
    return jnp.sqrt(squares).astype(x.dtype)


table.update(
    {
        "All": _reducing(jnp.all),
        "Any": _reducing(jnp.any),
        "EuclideanNorm": _reducing(euclidean_norm),
        "Max": _reducing(lax.reduce_max),
        "Mean": _reducing(mean),
        "Min": _reducing(lax.reduce_min),
        "Prod": _reducing(lambda x, along: jnp.prod(x, along, dtype=x.dtype)),
        "Sum": _reducing(lambda x, along: jnp.sum(x, along, dtype=x.dtype)),
    }
)
