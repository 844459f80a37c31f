"""Attention, rotation of positions, caches of keys and values, and linear attention."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics.attention import attend, form_of, plain, row_weights
from anyjax.onnx.core.schema import lowers


def split_heads(x, heads):
    """Returns [batch, heads, length, width]."""
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def limited(shape, left, right, past, lengths=None):
    """Returns what queries see, as limits of a form and as masks that broadcast to
    [batch, heads, queries, keys].

    Args:
      shape: (queries, keys).
      left, right: keys before and behind a query that it sees, all of them where negative.
      past: keys before the first query.
      lengths: keys of each row; its last query stands beside the last of them.
    """
    length, source = shape
    if left < 0 and right < 0:
        limits = {}
    elif left >= 0 and source != past + length:  # queries may see nothing
        limits, lengths = {}, jnp.full(1, past + length) if lengths is None else lengths
    else:
        reach = source if right < 0 else right
        window = left + reach + 1 if left >= 0 else None
        limits = {"causal": True, "window": window, "shift": past + reach}
    if lengths is None:
        return limits, ()
    key = lax.broadcasted_iota(np.int32, (1, source), 1)
    ends = lengths.reshape(-1, 1, 1, 1)
    seen = key < ends
    place = lax.broadcasted_iota(np.int32, (length, 1), 0) + ends - length
    seen = seen & (key <= place + right) if right >= 0 else seen
    return {}, (seen & (key >= place - left) if left >= 0 else seen,)


def hiding(attn_mask, keys):
    """Returns a mask of all keys; one that is shorter hides the rest."""
    outside = np.array(False if attn_mask.dtype == bool else -np.inf, attn_mask.dtype)
    margins = [(0, 0, 0)] * (attn_mask.ndim - 1) + [(0, keys - attn_mask.shape[-1], 0)]
    return lax.pad(attn_mask, outside, margins)


def with_past(past, x):
    return x if past is None else jnp.concatenate([past, x], 2)


def stage_of(mode, form, query, key, masks):
    """Returns scores as they are, capped, biased, or as weights."""
    if mode < 2:
        form, masks = replace(form, causal=False, cap=form.cap if mode else None), ()
    scores, _ = plain.scores_of(form, query, key, *masks)
    return plain.unfold(row_weights(scores)[0] if mode == 3 else scores, query.shape[2])


@lowers("Attention")
def attention(
    Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, is_causal, kv_num_heads,
    left_window_size, q_num_heads, qk_matmul_output_mode, right_window_size, scale, softcap,
    softmax_precision,
):  # fmt: skip
    """Scores and softmax are float32 at least; a row without a key gives zeros."""
    q = split_heads(Q, q_num_heads)
    k = with_past(past_key, split_heads(K, kv_num_heads))
    v = with_past(past_value, split_heads(V, kv_num_heads))
    past = 0 if past_key is None else past_key.shape[2]
    sides = left_window_size, 0 if is_causal else right_window_size
    limits, masks = limited((q.shape[2], k.shape[2]), *sides, past, nonpad_kv_seqlen)
    if attn_mask is not None:
        mask = hiding(attn_mask, k.shape[2])
        masks = (mask & masks[0],) if masks and mask.dtype == bool else (mask, *masks)
    form = form_of(q, scale, cap=softcap or None, **limits)
    y = attend(form, q, k, v, *masks).astype(Q.dtype)
    y = y.swapaxes(1, 2).reshape(*Q.shape[:2], -1) if Q.ndim == 3 else y
    scores = lambda: stage_of(qk_matmul_output_mode, form, q, k, masks).astype(Q.dtype)
    return y, k, v, scores


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
