"""Normalisations."""

import jax
import jax.numpy as jnp
import torch

from tojax.torch.table import lowers

aten = torch.ops.aten


@lowers(aten.layer_norm)
def layer_norm(input, normalized_shape, weight, bias, eps, cudnn_enable):
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    centred = input - input.mean(axes, keepdims=True)
    out = centred * jax.lax.rsqrt(jnp.square(centred).mean(axes, keepdims=True) + eps)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias
