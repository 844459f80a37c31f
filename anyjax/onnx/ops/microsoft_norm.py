"""Normalizations of onnxruntime, fused with the sums around them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import canonical
from anyjax.onnx.core.schema import lowers
from anyjax.onnx.ops.microsoft_activation import plus
from anyjax.onnx.ops.norm import group_norm, layer_norm, rms_norm, wide

FLOAT = np.dtype("float32")


@lowers("com.microsoft::SkipLayerNormalization")
def skip_layer_norm(input, skip, gamma, beta, bias, epsilon):
    total = plus(input + skip, bias)
    return *layer_norm(total, gamma, beta, -1, epsilon, FLOAT), total


@lowers("com.microsoft::SimplifiedLayerNormalization")
def simplified_layer_norm(X, scale, axis, epsilon, stash_type):
    axes = tuple(range(axis % X.ndim, X.ndim))
    inverse = lambda: lax.rsqrt(lax.square(wide(X)).mean(axes, keepdims=True) + epsilon)
    return rms_norm(X, scale, axis, epsilon, FLOAT), inverse


@lowers("com.microsoft::SkipSimplifiedLayerNormalization")
def skip_simplified_layer_norm(input, skip, gamma, bias, epsilon):
    total = plus(input + skip, bias)
    out, inverse = simplified_layer_norm(total, gamma, -1, epsilon, 1)
    return out, lambda: jnp.zeros((*total.shape[:-1], 1), FLOAT), inverse, total


@lowers("com.microsoft::EmbedLayerNormalization")
def embed_layer_norm(
    input_ids, segment_ids, word_embedding, position_embedding, segment_embedding, gamma, beta,
    mask, position_ids, epsilon, mask_index_type,
):  # fmt: skip
    """The second output counts the ones of each row of the mask."""
    length = input_ids.shape[1]
    positions = jnp.arange(length) if position_ids is None else position_ids
    total = word_embedding[input_ids] + position_embedding[positions]
    if segment_ids is not None:
        total += segment_embedding[segment_ids]
    valid = jnp.zeros_like(input_ids) if mask is None else mask == 1
    counts = lambda: valid.sum(1, dtype=canonical("int32"))
    return layer_norm(total, gamma, beta, -1, epsilon, FLOAT)[0], counts, total


@lowers("com.microsoft::SkipGroupNorm")
def skip_group_norm(X, gamma, beta, skip, bias, activation, channels_last, epsilon, groups):
    """The activation is SiLU; the skip may be one value for each channel of an image."""
    first = X if channels_last else jnp.moveaxis(X, 1, -1)
    if skip is not None:
        if skip.ndim == X.ndim and not channels_last:
            skip = jnp.moveaxis(skip, 1, -1)
        spread = skip.reshape(len(skip), *[1] * (X.ndim - 2), -1) if skip.ndim == 2 else skip
        first = plus(first + spread, bias)
    turned = jnp.moveaxis(first, -1, 1)
    out = group_norm(turned, gamma, beta, epsilon, groups, FLOAT)
    out = jax.nn.silu(out) if activation else out
    if channels_last:
        return jnp.moveaxis(out, 1, -1), first
    return out, turned


@lowers("com.microsoft::GroupNorm")
def group_norm_and_silu(X, gamma, beta, activation, channels_last, epsilon, groups):
    how = activation, channels_last, epsilon, groups
    return skip_group_norm(X, gamma, beta, None, None, *how)[0]
