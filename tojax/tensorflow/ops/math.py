"""Elementwise arithmetic."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tojax.tensorflow.core.schema import table

table.update(
    {
        "Add": jnp.add,
        "AddV2": jnp.add,
        "Sub": jnp.subtract,
        "Mul": jnp.multiply,
        "RealDiv": jnp.divide,
        "Neg": lax.neg,
        "Rsqrt": lax.rsqrt,
        "Sqrt": lax.sqrt,
        "Exp": lax.exp,
        "Log": lax.log,
        "Sin": lax.sin,
        "Cos": lax.cos,
        "Tanh": lax.tanh,
        "Sigmoid": lax.logistic,
        "Square": lax.square,
    }
)
