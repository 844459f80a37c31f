"""Products of matrices, each one ``dot_general``: XLA would copy a transposed operand."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax


def product(a, b, turn_a, turn_b, dtype=None):
    """Multiplies matrices; leading axes broadcast, ``turn`` swaps the last two axes."""
    batch = a.ndim - 2
    if b.ndim == 2 or a.shape[:batch] == b.shape[:-2]:
        shared = tuple(range(b.ndim - 2))
        axis_a = a.ndim - (2 if turn_a else 1)
        axis_b = b.ndim - (1 if turn_b else 2)
        return lax.dot_general(
            a, b, (((axis_a,), (axis_b,)), (shared, shared)), preferred_element_type=dtype
        )
    rows, columns = "ki" if turn_a else "ik", "jk" if turn_b else "kj"
    equation = f"...{rows},...{columns}->...ij"
    return jnp.einsum(equation, a, b, preferred_element_type=dtype)
