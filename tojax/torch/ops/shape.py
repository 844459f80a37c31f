"""Operators that move elements around without looking at them."""

import jax
import jax.numpy as jnp
import torch

from tojax.torch.table import lowers, table

aten = torch.ops.aten

table.update(
    {
        aten.view.default: lambda self, size: jnp.reshape(self, size),
        aten.unsqueeze.default: lambda self, dim: jnp.expand_dims(self, dim),
        aten.transpose.int: lambda self, dim0, dim1: jnp.swapaxes(self, dim0, dim1),
        aten.t.default: lambda self: self.T,
        aten.split.Tensor: lambda self, split_size, dim: jnp.split(self, list(range(split_size, self.shape[dim], split_size)), dim),
        aten.clone.default: lambda self: self,
    }
)


@lowers(aten._to_copy, )
def to_copy(self, dtype):
    return self if dtype is None else jax.lax.convert_element_type(self, dtype)
