"""Backward passes that are operators of their own, as the graphs of AOTAutograd hold them, and that
``jax.vjp`` of the operator does not serve, or would compute the operator again for
(anyjax/torch/lowering/gradients.py).
"""

import math

import jax
import jax.numpy as jnp

from anyjax.numerics.attention import plain
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops.attention import arguments
from anyjax.torch.ops.conv import convolution
from anyjax.torch.ops.pool import flat


@lowers(aten.convolution_backward)
def convolution_backward(
    grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding,
    groups, output_mask,
):  # fmt: skip
    options = stride, padding, dilation, transposed, output_padding, groups
    forward = lambda x, w: convolution(x, w, None, *options)
    gradients = jax.vjp(forward, input, weight)[1](grad_output)
    channel = grad_output.ndim - weight.ndim + 1
    axes = [i for i in range(grad_output.ndim) if i != channel]
    every = zip((*gradients, grad_output.sum(axes)), output_mask, strict=True)
    return tuple(x if needed else None for x, needed in every)


@lowers(aten._scaled_dot_product_flash_attention_for_cpu_backward)
def flash_attention_for_cpu_backward(
    grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale
):
    """Torch takes this kernel where nothing is dropped. A row masked out entirely has no weights
    and the logarithm of 0.
    """
    form, query, key, value, *masks = arguments(query, key, value, attn_mask, is_causal, scale)
    sums = jnp.where(jnp.isfinite(logsumexp), logsumexp, 0)
    of = plain.backward(form, query, key, value, masks, out, sums, grad_out)
    return tuple(x.astype(query.dtype) for x in of[:3])


def maximum_backward(rank):
    """Each gradient goes to the place of its maximum."""

    def backward(grad_output, self, /, *window_and_indices):
        indices, shape = window_and_indices[-1], flat(self, rank).shape
        rows = (x.reshape(math.prod(shape[:-1]), -1) for x in (grad_output, indices))
        add = lambda grad, at: jnp.zeros(shape[-1], grad.dtype).at[at].add(grad)
        return jax.vmap(add)(*rows).reshape(self.shape)

    return backward


for _name, _rank in {
    "adaptive_max_pool2d": 2, "fractional_max_pool2d": 2, "adaptive_max_pool3d": 3,
    "fractional_max_pool3d": 3, "max_pool3d_with_indices": 3,
}.items():  # fmt: skip
    table.update({getattr(aten, f"{_name}_backward"): maximum_backward(_rank)})


@lowers(aten._weight_norm_interface_backward)
def weight_norm_backward(grad_w, saved_v, saved_g, saved_norms, dim):
    axes = tuple(i for i in range(saved_v.ndim) if i != dim)
    scaled = lambda v, g: v * (g / jnp.sqrt(jnp.square(v).sum(axes, keepdims=True)))
    return jax.vjp(scaled, saved_v, saved_g)[1](grad_w)
