"""Elementwise operators."""

import jax
import jax.numpy as jnp
import torch

from tojax.torch.table import lowers, table

aten = torch.ops.aten

table.update(
    {
        aten.abs: jnp.abs,
        aten.tanh: jnp.tanh,
        aten.add: lambda self, other, alpha: jnp.add(self, other if alpha == 1 else alpha * other),
        aten.mul: jnp.multiply,
        aten.pow: jnp.power,
    }
)


@lowers(aten.gelu)
def gelu(self, approximate):
    """torch names the approximation, jax.nn flags it."""
    return jax.nn.gelu(self, approximate=approximate == "tanh")
