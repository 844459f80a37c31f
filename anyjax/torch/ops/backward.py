"""Backward passes that are operators of their own, as the graphs of AOTAutograd hold them: mostly
``jax.vjp`` of what the operator itself is lowered to.
"""

import math

import jax
import jax.numpy as jnp
import torch

from anyjax.numerics.attention import plain
from anyjax.numerics.sampling import sample_grid
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops.attention import arguments
from anyjax.torch.ops.conv import convolution
from anyjax.torch.ops.distance import cdist as distances
from anyjax.torch.ops.distance import pdist as distances_inside
from anyjax.torch.ops.pool import adaptive_avg_pool, avg_pool, flat


def pulled(function, *primals, cotangent):
    """The gradients of a function's arguments."""
    return jax.vjp(function, *primals)[1](cotangent)


def selected(gradients, output_mask):
    """The gradients that are asked for."""
    return tuple(x if needed else None for x, needed in zip(gradients, output_mask, strict=True))


@lowers(aten.convolution_backward)
def convolution_backward(
    grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding,
    groups, output_mask,
):  # fmt: skip
    options = stride, padding, dilation, transposed, output_padding, groups
    forward = lambda x, w: convolution(x, w, None, *options)
    gradients = pulled(forward, input, weight, cotangent=grad_output)
    channel = grad_output.ndim - weight.ndim + 1
    axes = [i for i in range(grad_output.ndim) if i != channel]
    return selected((*gradients, grad_output.sum(axes)), output_mask)


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


def average_backward(rank):
    def backward(grad_output, self, /, *window):
        return pulled(lambda x: avg_pool(rank)(x, *window), self, cotangent=grad_output)[0]

    return backward


def adaptive_average_backward(rank):
    def backward(grad_output, self, /):
        size = grad_output.shape[-rank:]
        return pulled(lambda x: adaptive_avg_pool(x, size), self, cotangent=grad_output)[0]

    return backward


def maximum_backward(rank):
    """Each gradient goes to the place of its maximum."""

    def backward(grad_output, self, /, *window_and_indices):
        indices, shape = window_and_indices[-1], flat(self, rank).shape
        rows = (x.reshape(math.prod(shape[:-1]), -1) for x in (grad_output, indices))
        add = lambda grad, at: jnp.zeros(shape[-1], grad.dtype).at[at].add(grad)
        return jax.vmap(add)(*rows).reshape(self.shape)

    return backward


def resize_backward(op):
    """Resizing is linear: its gradient is that at zeros."""

    def backward(grad_output, output_size, input_size, /, *options):
        forward = lambda x: table.find(op).lowering(x, output_size, *options)
        zeros = jnp.zeros(input_size, grad_output.dtype)
        return pulled(forward, zeros, cotangent=grad_output)[0]

    return backward


for _rank in (2, 3):
    table.update(
        {
            getattr(aten, f"avg_pool{_rank}d_backward"): average_backward(_rank),
            getattr(aten, f"_adaptive_avg_pool{_rank}d_backward"): adaptive_average_backward(_rank),
            getattr(aten, f"adaptive_max_pool{_rank}d_backward"): maximum_backward(_rank),
            getattr(aten, f"fractional_max_pool{_rank}d_backward"): maximum_backward(_rank),
        }
    )
table.update({aten.max_pool3d_with_indices_backward: maximum_backward(3)})
_RESIZES = [
    f"{name}{n}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)
]
_RESIZES += [
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "upsample_trilinear3d",
]
_RESIZES += [f"_upsample_{name}2d_aa" for name in ("bilinear", "bicubic", "lanczos")]
for _name in _RESIZES:
    if (_op := getattr(torch.ops.aten, f"{_name}_backward", None)) is not None:
        table.update({_op.default: resize_backward(getattr(torch.ops.aten, _name).default)})


@lowers(aten.grid_sampler_2d_backward, aten.grid_sampler_3d_backward)
def grid_sampler_backward(
    grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask
):
    options = interpolation_mode, padding_mode, align_corners
    forward = lambda x, at: sample_grid(x, at, *options)
    return selected(pulled(forward, input, grid, cotangent=grad_output), output_mask)


@lowers(aten._cdist_backward)
def cdist_backward(grad, x1, x2, p, cdist, /):
    return pulled(lambda x: distances(x, x2, p, None), x1, cotangent=grad)[0]


@lowers(aten._pdist_backward)
def pdist_backward(grad, self, p, pdist, /):
    return pulled(lambda x: distances_inside(x, p), self, cotangent=grad)[0]


@lowers(aten._weight_norm_interface_backward)
def weight_norm_backward(grad_w, saved_v, saved_g, saved_norms, dim):
    axes = tuple(i for i in range(saved_v.ndim) if i != dim)
    scaled = lambda v, g: v * (g / jnp.sqrt(jnp.square(v).sum(axes, keepdims=True)))
    return pulled(scaled, saved_v, saved_g, cotangent=grad_w)
