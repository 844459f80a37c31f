"""Normalization: by the statistics of a batch or of a population, and by neighbours."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics.normalization import standardized
from anyjax.tensorflow.core.schema import lowers


def fused(x, scale, offset, mean, variance, epsilon, factor, data_format, is_training, reserves):
    """Returns TensorFlow's outputs, with ``reserves`` reserve spaces after the two of version 1.

    The gradient is that of the first output alone. Statistics are as wide as ``scale``.
    """
    axes = tuple(i for i in range(x.ndim) if i != data_format.index("C"))
    wide = x.astype(scale.dtype)
    along = lambda v: lax.expand_dims(v, axes)
    mean, variance = lax.stop_gradient((mean, variance))
    if is_training:
        y, *batch = standardized(wide, epsilon, axes)
        y = y * along(scale)
        saved = [lax.stop_gradient(v.reshape(scale.shape)) for v in batch]
        count = jnp.asarray(math.prod(x.shape[i] for i in axes), scale.dtype)
        old, new = (mean, variance), (saved[0], saved[1] * (count / jnp.maximum(count - 1, 1)))
        out = new if factor == 1 else [(1 - factor) * o + factor * n for o, n in zip(old, new)]
    else:
        saved = out = mean, variance
        y = (wide - along(mean)) * along(scale * lax.rsqrt(variance + epsilon))
    y = (y + along(offset)).astype(x.dtype)
    return y, *out, *saved, *[jnp.zeros(0, scale.dtype)] * reserves


@lowers("FusedBatchNorm", "FusedBatchNormV2")
def fused_batch_norm(x, scale, offset, mean, variance, /, *how):
    return fused(x, scale, offset, mean, variance, *how, reserves=0)


@lowers("FusedBatchNormV3")
def fused_batch_norm_v3(x, scale, offset, mean, variance, /, *how):
    return fused(x, scale, offset, mean, variance, *how, reserves=1)


@lowers("FusedBatchNormGrad", "FusedBatchNormGradV2")
def fused_batch_norm_grad(
    y_backprop, x, scale, reserve_space_1, reserve_space_2, epsilon, data_format, is_training
):
    """In training the statistics are those of ``x``, so that second derivatives see them."""

    def normalize(x, scale, offset):
        how = epsilon, 1.0, data_format, is_training
        return fused(x, scale, offset, reserve_space_1, reserve_space_2, *how, reserves=0)[0]

    grads = jax.vjp(normalize, x, scale, jnp.zeros_like(scale))[1](y_backprop)
    return *grads, *[jnp.zeros((), scale.dtype)] * 2


@lowers("FusedBatchNormGradV3")
def fused_batch_norm_grad_v3(y_backprop, x, scale, reserve_1, reserve_2, reserve_3, /, *how):
    return fused_batch_norm_grad(y_backprop, x, scale, reserve_1, reserve_2, *how)


@lowers("LRN")
def local_response(input, depth_radius, bias, alpha, beta):
    """Divided by a power of the sum of the squares of neighbouring channels."""
    wide = input.astype(jnp.promote_types(input.dtype, np.float32))
    window = [1] * (input.ndim - 1) + [2 * depth_radius + 1]
    around = lax.reduce_window(
        lax.square(wide), np.array(0, wide.dtype), lax.add, window, [1] * input.ndim, "SAME"
    )
    return (wide * (bias + alpha * around) ** -beta).astype(input.dtype)


@lowers("LRNGrad")
def local_response_grad(input_grads, input_image, output_image, /, *how):
    return jax.vjp(lambda x: local_response(x, *how), input_image)[1](input_grads)[0]
