"""Choosing by a mask."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.schema import Static, lowers


@lowers("SelectV2")
def select(condition, t, e):
    if condition.shape == t.shape == e.shape:
        return lax.select(condition, t, e)
    return jnp.where(condition, t, e)


@lowers("Select")
def select_v1(condition, t, e):
    """A vector chooses rows."""
    if 0 < condition.ndim < t.ndim:
        condition = lax.expand_dims(condition, range(condition.ndim, t.ndim))
    return select(condition, t, e)


@lowers("Where")
def where(input: Static):
    """The values decide how many places there are."""
    return np.argwhere(input)
