"""Conditions on which the output of a program depends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from anyjax import trees


def enforced(out: object, conditions: Sequence[jax.Array] | None) -> tuple[Any, jax.Array | None]:
    """Returns (the output, its floats NaN unless the conditions hold, whether they do).

    Gradients are NaN, too, so this is a product and no selection.
    """
    if not conditions:
        return out, None
    holds = jnp.stack(conditions).all()
    factor = jnp.where(holds, 1, jnp.nan)
    floats = lambda x: isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.inexact)
    marked = lambda x: x * factor.astype(x.dtype) if floats(x) else x
    return trees.plain_dicts(jax.tree.map(marked, trees.keep_order(out))), holds
