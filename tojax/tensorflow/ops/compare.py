"""Comparisons and logic."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import lowers, table


def _unless_shapes_differ(function, otherwise):
    """Shapes that do not broadcast are an error or, if the operator says so, a plain answer."""

    def lowering(x, y, incompatible_shape_error):
        if not incompatible_shape_error:
            try:
                np.broadcast_shapes(x.shape, y.shape)
            except ValueError:
                return np.asarray(otherwise)
        return function(x, y)

    return lowering


table.update(
    {
        "Equal": _unless_shapes_differ(jnp.equal, False),
        "Greater": jnp.greater,
        "GreaterEqual": jnp.greater_equal,
        "IsFinite": lax.is_finite,
        "IsInf": jnp.isinf,
        "IsNan": lambda x: x != x,
        "Less": jnp.less,
        "LessEqual": jnp.less_equal,
        "LogicalAnd": jnp.logical_and,
        "LogicalNot": jnp.logical_not,
        "LogicalOr": jnp.logical_or,
        "NotEqual": _unless_shapes_differ(jnp.not_equal, True),
        "ApproximateEqual": lambda x, y, tolerance: jnp.abs(x - y) < tolerance,
    }
)


@lowers("Bucketize")
def bucketize(input, boundaries):
    """How many boundaries are not above each value."""
    kind = np.float32 if jnp.issubdtype(input.dtype, jnp.integer) else input.dtype
    edges = jnp.asarray(np.asarray(boundaries, kind))
    return jnp.searchsorted(edges, input.astype(kind), side="right").astype(np.int32)
