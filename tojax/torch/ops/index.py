"""Indexing, gathering and scattering."""

import jax.numpy as jnp
import torch

from tojax.torch.table import lowers

aten = torch.ops.aten


@lowers(aten.embedding)
def embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse):
    return jnp.take(weight, indices, axis=0)
