"""Bits of integers."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.errors import Unsupported
from tojax.tensorflow.core.known import as_jax, is_known
from tojax.tensorflow.core.schema import Known, lowers, table


def _amount(x, y):
    """Negative shifts count as 0, those by more than the width as one less than it."""
    return jnp.clip(as_jax(y), 0, x.dtype.itemsize * 8 - 1).astype(x.dtype)


def _beyond(x, y) -> bool:
    """Whether 64-bit integers, of which JAX keeps 32 bits, are shifted by more than these."""
    return is_known(y) and y.dtype.itemsize > x.dtype.itemsize and bool((np.asarray(y) > 31).any())


@lowers("LeftShift")
def left_shift(x, y: Known):
    if _beyond(x, y):
        raise Unsupported(
            "a shift of 64-bit integers by 32 bits or more",
            why="JAX keeps 32-bit integers unless x64 is on",
            do='call jax.config.update("jax_enable_x64", True) first',
        )
    return jnp.left_shift(x, _amount(x, y))


@lowers("RightShift")
def right_shift(x, y: Known):
    out = jnp.right_shift(x, _amount(x, y))
    lost = _beyond(x, y) and x.dtype.kind == "u"
    return jnp.where(np.asarray(y) > 31, out.dtype.type(0), out) if lost else out


table.update(
    {
        "BitwiseAnd": jnp.bitwise_and,
        "BitwiseOr": jnp.bitwise_or,
        "BitwiseXor": jnp.bitwise_xor,
        "Invert": jnp.bitwise_not,
        "PopulationCount": lambda x: lax.population_count(x).astype(np.uint8),
    }
)
