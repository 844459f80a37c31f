"""Attention, rotation of positions, caches of keys and values, and linear attention."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics.attention import pairs, row_weights
from anyjax.onnx.core.schema import lowers


def split_heads(x, heads):
    """Returns [batch, heads, length, width]."""
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def allowed(shape, offset, lengths, is_causal, left, right):
    """Returns which keys each query sees, to broadcast to [batch, heads, queries, keys], or None.

    The first query stands at ``offset``; with ``lengths`` of the rows, before the end of each.
    """
    query, key = (lax.broadcasted_iota(np.int32, shape, i) for i in (0, 1))
    if lengths is not None:
        lengths = lengths.reshape(-1, 1, 1, 1)
        offset = lengths - shape[0]
    right = 0 if is_causal else right
    masks = [] if lengths is None else [key < lengths]
    if right >= 0:
        masks.append(key <= query + offset + right)
    if left >= 0:
        masks.append(key >= query + offset - left)
    return None if not masks else math.prod(masks[1:], start=masks[0])


def bias_of(attn_mask, visible, keys, dtype):
    """Returns what is added to the scores; a mask that is shorter than the keys hides the rest."""
    minus = lambda mask: jnp.where(mask, dtype.type(0), dtype.type(-np.inf))
    bias = [] if visible is None else [minus(visible)]
    if attn_mask is not None:
        mask = minus(attn_mask) if attn_mask.dtype == bool else attn_mask.astype(dtype)
        margins = [(0, 0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1], 0)]
        bias.append(lax.pad(mask, dtype.type(-np.inf), margins))
    return sum(bias[1:], start=bias[0]) if bias else None


def with_past(past, x):
    return x if past is None else jnp.concatenate([past, x], 2)


def stages_of(scores, softcap, bias):
    """Returns scores as they are, capped, biased, and as weights."""
    capped = softcap * jnp.tanh(scores / softcap) if softcap else scores
    biased = capped if bias is None else capped + bias
    return scores, capped, biased, row_weights(biased)[0]


@lowers("Attention")
def attention(
    Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, is_causal, kv_num_heads,
    left_window_size, q_num_heads, qk_matmul_output_mode, right_window_size, scale, softcap,
    softmax_precision,
):  # fmt: skip
    """Scores and softmax are float32 at least; a row without a key gives zeros. Query heads that
    share a key head are rows of one product.
    """
    q = split_heads(Q, q_num_heads)
    k = with_past(past_key, split_heads(K, kv_num_heads))
    v = with_past(past_value, split_heads(V, kv_num_heads))
    shape, folded = (*q.shape[:3], k.shape[2]), (*k.shape[:2], -1)
    wide = jnp.promote_types(Q.dtype, np.float32)
    factor = wide.type(1 / math.sqrt(q.shape[3]) if scale is None else scale)
    scores = pairs(q.reshape(*folded, q.shape[3]), k, (1, 1), wide) * factor
    offset = 0 if past_key is None else past_key.shape[2]
    how = offset, nonpad_kv_seqlen, is_causal, left_window_size, right_window_size
    bias = bias_of(attn_mask, allowed(shape[2:], *how), shape[3], wide)
    stages = stages_of(scores.reshape(shape), softcap, bias)
    weights = stages[3].astype(V.dtype).reshape(*folded, shape[3])
    y = pairs(weights, v, (1, 0)).reshape(*shape[:3], v.shape[3]).astype(Q.dtype)
    y = y.swapaxes(1, 2).reshape(*Q.shape[:2], -1) if Q.ndim == 3 else y
    return y, k, v, stages[qk_matmul_output_mode].astype(Q.dtype)


@lowers("RotaryEmbedding")
def rotary_embedding(
    X, cos_cache, sin_cache, position_ids, interleaved, num_heads, rotary_embedding_dim
):
    """Rotates pairs of numbers of each head: neighbours, or those of two halves."""
    x = split_heads(X, num_heads)
    size = rotary_embedding_dim or x.shape[-1]
    caches = cos_cache, sin_cache
    if position_ids is not None:
        caches = (jnp.take(v, position_ids, 0, mode="clip") for v in caches)
    cos, sin = (v[:, None] for v in caches)
    turned, rest = x[..., :size], x[..., size:]
    axis = -1 if interleaved else -2
    shape = (*turned.shape[:-1], *((size // 2, 2) if interleaved else (2, size // 2)))
    a, b = (v.squeeze(axis) for v in jnp.split(turned.reshape(shape), 2, axis))
    turned = jnp.stack([cos * a - sin * b, sin * a + cos * b], axis).reshape(turned.shape)
    out = jnp.concatenate([turned, rest], -1) if rest.shape[-1] else turned
    return out.swapaxes(1, 2).reshape(X.shape) if X.ndim == 3 else out


@lowers("TensorScatter")
def tensor_scatter(past_cache, update, write_indices, axis, mode):
    """Writes at each row's own place; circular ones go on at the start."""
    axis %= past_cache.ndim
    places = lax.iota(np.int32, update.shape[axis])[None]
    if write_indices is not None:
        places = places + write_indices.reshape(-1, 1)
    if mode == "circular":
        places %= past_cache.shape[axis]
    rows = lax.iota(np.int32, past_cache.shape[0])[:, None]
    index = (rows, *[slice(None)] * (axis - 1), places)
    moved = update if axis == 1 else jnp.moveaxis(update, axis, 1)
    return past_cache.at[index].set(moved)


def linear_step(state, inputs):
    """Returns the next state and what the queries read of it."""
    q, k, v, g, b = inputs
    state = state if g is None else state * g
    v = v if b is None else b * (v - jnp.einsum("bhkv,bhk->bhv", state, k))
    state = state + k[..., None] * v[..., None, :]
    return state, jnp.einsum("bhgk,bhkv->bhgv", q, state)


@lowers("LinearAttention")
def linear_attention(
    query, key, value, past_state, decay, beta, chunk_size, kv_num_heads, q_num_heads, scale,
    update_rule,
):  # fmt: skip
    """Steps through the sequence; the state is float32 at least."""
    wide, heads = jnp.promote_types(query.dtype, np.float32), kv_num_heads
    batch, length, _ = query.shape
    by_time = lambda x, *shape: x.astype(wide).reshape(batch, length, *shape).swapaxes(0, 1)
    q = by_time(query, heads, q_num_heads // heads, query.shape[2] // q_num_heads)
    k, v = by_time(key, heads, -1), by_time(value, heads, -1)
    g = None if decay is None else jnp.exp(by_time(decay, heads, -1, 1))
    b = None if beta is None else by_time(beta, -1, 1)
    state = jnp.zeros((batch, heads, k.shape[3], v.shape[3]), wide)
    state = state if past_state is None else past_state.astype(wide)
    state, out = lax.scan(linear_step, state, (q, k, v, g, b))
    out = out.swapaxes(0, 1).reshape(batch, length, -1) * (scale or q.shape[-1] ** -0.5)
    dtype = query.dtype if past_state is None else past_state.dtype
    return out.astype(query.dtype), state.astype(dtype)
