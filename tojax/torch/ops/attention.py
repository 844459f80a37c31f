"""Attention."""

import math

import jax
import jax.numpy as jnp
import torch

from tojax.torch.table import lowers

aten = torch.ops.aten


@lowers(aten.scaled_dot_product_attention)
def scaled_dot_product_attention(
    rng, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
):
    """Softmax in float32 at least; a row that is masked out entirely gives zeros, as in torch."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    heads, size = key.shape[-3], query.shape
    if enable_gqa:  # query heads of one group share a key head: [..., kv, group, length, width]
        query = query.reshape(*size[:-3], heads, -1, *size[-2:])
        key, value = (jnp.expand_dims(x, -3) for x in (key, value))
        key, value = (jnp.broadcast_to(x, (*query.shape[:-2], *x.shape[-2:])) for x in (key, value))
    scores = jnp.einsum("...qd,...kd->...qk", query, key) * scale
    if is_causal:
        attn_mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    if attn_mask is not None:
        if enable_gqa and attn_mask.ndim > 2:
            mask_heads = attn_mask.shape[-3]
            shape = (heads, -1) if mask_heads > 1 else (1, 1)
            attn_mask = attn_mask.reshape(*attn_mask.shape[:-3], *shape, *attn_mask.shape[-2:])
        bias = jnp.where(attn_mask, 0, -jnp.inf).astype(scores.dtype) if attn_mask.dtype == bool else attn_mask
        scores = scores + bias
    weights = softmax(scores).astype(query.dtype)
    if dropout_p:
        keep = jax.random.bernoulli(rng, 1 - dropout_p, weights.shape)
        weights = jnp.where(keep, weights / (1 - dropout_p), 0)
    out = jnp.einsum("...qk,...kd->...qd", weights, value)
    return out.reshape(*size[:-1], value.shape[-1])


def softmax(scores):
    """Rows of -inf only give zeros instead of NaN, and pass zero gradient."""
    high = jax.lax.stop_gradient(scores.max(-1, keepdims=True))
    exp = jnp.exp(scores - jnp.where(jnp.isfinite(high), high, 0))
    total = exp.sum(-1, keepdims=True)
    return exp / jnp.where(total == 0, 1, total)
