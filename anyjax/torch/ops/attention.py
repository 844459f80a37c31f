"""Attention."""

import math

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.errors import Unsupported
from anyjax.numerics.attention import pairs, row_weights
from anyjax.torch.core.schema import aten, lowers


def bias_of(attn_mask, is_causal, length, source, dtype):
    """Returns the bias of scores of [length, source], None for none.

    Masks are added, as torch does: XLA:CPU makes one kernel of product, addition, maximum and
    exponential, which a selection in their midst would be four of.
    """
    if is_causal:
        if attn_mask is not None:
            raise Unsupported(
                "is_causal together with attn_mask",
                why="torch refuses it",
                do="combine them yourself",
            )
        row, column = (lax.broadcasted_iota(jnp.int32, (length, source), i) for i in (0, 1))
        attn_mask = row >= column
    if attn_mask is None or attn_mask.dtype != bool:
        return attn_mask
    return jnp.where(attn_mask, dtype.type(0), dtype.type(-math.inf))


def attend(rng, query, key, value, attn_mask, dropout_p, is_causal, scale):
    """(result, sums of exponentials, largest scores). Scores and softmax are float32 at least; a
    row masked out entirely gives zeros.
    """
    wide = jnp.promote_types(query.dtype, jnp.float32)
    factor = wide.type(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = lax.mul(pairs(query, key, (1, 1), wide), factor)
    bias = bias_of(attn_mask, is_causal, *scores.shape[-2:], wide)
    scores = scores if bias is None else scores + bias
    weights, total, high = row_weights(scores)
    weights = weights.astype(value.dtype)
    if dropout_p:
        keep_mask = jax.random.bernoulli(rng, 1 - dropout_p, weights.shape)
        weights = jnp.where(keep_mask, weights / (1 - dropout_p), 0)
    return pairs(weights, value, (1, 0)), total, high


def fold(x, heads):
    """Query heads that share a key head become its rows: [..., heads, length * group, width].

    Those of a position stand beside each other, so that a length can be divided over devices.
    """
    x = x.reshape(*x.shape[:-3], heads, -1, *x.shape[-2:]).swapaxes(-3, -2)
    return x.reshape(*x.shape[:-3], -1, x.shape[-1])


@lowers(aten.scaled_dot_product_attention)
def scaled_dot_product_attention(
    rng, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
):
    """Grouped heads share their keys without repeating them."""
    if not enable_gqa or query.shape[-3] == key.shape[-3] == value.shape[-3]:
        return attend(rng, query, key, value, attn_mask, dropout_p, is_causal, scale)[0]
    shape, heads, source = query.shape, key.shape[-3], key.shape[-2]
    if value.shape[-3] != heads:  # torch repeats each of them to the query's heads
        value = jnp.repeat(value, shape[-3] // value.shape[-3], -3)
        key, heads = jnp.repeat(key, shape[-3] // heads, -3), shape[-3]
    mask = bias_of(attn_mask, is_causal, shape[-2], source, jnp.promote_types(query.dtype, "f4"))
    if mask is not None:
        lead = mask.shape[:-3] if mask.ndim > 3 else ()
        mask = fold(jnp.broadcast_to(mask, (*lead, *shape[-3:-1], source)), heads)
    out = attend(rng, fold(query, heads), key, value, mask, dropout_p, False, scale)[0]
    out = out.reshape(*out.shape[:-2], shape[-2], -1, out.shape[-1]).swapaxes(-3, -2)
    return out.reshape(*shape[:-1], value.shape[-1])


@lowers(aten._scaled_dot_product_flash_attention_for_cpu)
def flash_attention_for_cpu(rng, query, key, value, dropout_p, is_causal, attn_mask, scale):
    """The second result is the log of the sum of exponentials of each row."""
    out, total, high = attend(rng, query, key, value, attn_mask, dropout_p, is_causal, scale)
    return out, (lax.log(total) + high)[..., 0]
