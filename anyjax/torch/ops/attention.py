"""Attention."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.errors import Unsupported
from anyjax.numerics import attention
from anyjax.numerics.attention import plain
from anyjax.torch.core.mask_limits import limits_of
from anyjax.torch.core.schema import aten, lowers


def arguments(query, key, value, attn_mask, is_causal, scale):
    """Returns (form, query, key, value, *masks); leading dimensions broadcast, as in torch."""
    if is_causal and attn_mask is not None:
        raise Unsupported(
            "is_causal together with attn_mask", why="torch refuses it", do="combine them yourself"
        )
    arrays = [query, key, value]
    if any(x.shape[:-2] != query.shape[:-2] for x in arrays):
        lead = lax.broadcast_shapes(*(x.shape[:-2] for x in arrays))
        arrays = [jnp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in arrays]
    return call(*arrays, attn_mask, is_causal, scale)


def call(query, key, value, attn_mask, is_causal, scale):
    """``arguments`` whose leading dimensions fit each other."""
    if not isinstance(scale, float | int | None):  # one that is traced
        query, scale = query * jnp.asarray(scale, query.dtype), 1.0
    limits = None if attn_mask is None else limits_of(attn_mask)
    if limits is None or not attention.is_large(query, key):
        form = attention.form_of(query, scale, causal=is_causal)
        return form, query, key, value, *(() if attn_mask is None else (attn_mask,))
    kind = {"causal": limits.causal, "window": limits.window, "shift": limits.shift}
    form = attention.form_of(query, scale, **kind)
    return form, query, key, value, *limits.mask(key.shape[-2])


def dropout(rng, rate, weights, block=None):
    """Weights, of which some are zeros; each block of rows has a key of its own."""
    rng = rng if block is None else jax.random.fold_in(rng, block)
    kept = jax.random.bernoulli(rng, 1 - rate, weights.shape)
    return jnp.where(kept, weights / (1 - rate), 0)


@lowers(aten.scaled_dot_product_attention)
def scaled_dot_product_attention(
    rng, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
):
    """Grouped heads share their keys without repeating them."""
    if enable_gqa and key.shape[-3] != value.shape[-3]:  # torch repeats each to the query's heads
        key, value = (jnp.repeat(x, query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    prepare = call if enable_gqa else arguments
    arrays = prepare(query, key, value, attn_mask, is_causal, scale)
    drop = functools.partial(dropout, rng, dropout_p) if dropout_p else None
    return attention.attend(*arrays, drop=drop)


@lowers(aten._scaled_dot_product_flash_attention_for_cpu)
def flash_attention_for_cpu(rng, query, key, value, dropout_p, is_causal, attn_mask, scale):
    """The second result is the log of the sum of exponentials of each row."""
    drop = functools.partial(dropout, rng, dropout_p) if dropout_p else None
    return plain.attend(*arguments(query, key, value, attn_mask, is_causal, scale), drop=drop)
