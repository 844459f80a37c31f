"""Bits of integers."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import table


def _shifted(function):
    """Negative shifts count as 0, those by more than the width as one less than it."""
    return lambda x, y: function(x, jnp.clip(y, 0, x.dtype.itemsize * 8 - 1).astype(x.dtype))


table.update(
    {
        "BitwiseAnd": jnp.bitwise_and,
        "BitwiseOr": jnp.bitwise_or,
        "BitwiseXor": jnp.bitwise_xor,
        "Invert": jnp.bitwise_not,
        "LeftShift": _shifted(jnp.left_shift),
        "PopulationCount": lambda x: lax.population_count(x).astype(np.uint8),
        "RightShift": _shifted(jnp.right_shift),
    }
)
