"""Attention of onnxruntime: packed projections, masks of many shapes, caches."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.errors import Unsupported
from anyjax.onnx.core.schema import Static, lowers
from anyjax.onnx.ops.microsoft_rotary import rotated


def refuse(name, what, do):
    """Raises Unsupported for an input or attribute."""
    raise Unsupported(
        f"{name} with {what}",
        why="onnxruntime writes it for kernels of its own, not into exported models",
        do=do,
    )


def heads_of(x, heads):
    """Turns ``[batch, length, heads * size]`` to ``[batch, heads, length, size]``."""
    return jnp.swapaxes(x.reshape(*x.shape[:2], heads, -1), 1, 2)


def joined(x):
    """Turns ``[batch, heads, length, size]`` to ``[batch, length, heads * size]``."""
    x = jnp.swapaxes(x, 1, 2)
    return x.reshape(*x.shape[:2], -1)


def attend(query, key, value, bias, scale, sink=None, softcap=0.0):
    """Returns the attention, ``[batch, heads, length, size]``, and its scores before the softmax.

    Args:
      query, key, value: ``[batch, heads, length, size]``; several heads of the query may share one
        of the others.
      bias: added to the scores, or None.
      scale: of the scores; None or 0 is ``1 / sqrt(size)``.
      sink: scores, one for each head, that take part in the softmax alone.
    """
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = (jnp.repeat(x, repeats, 1) for x in (key, value))
    scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) * (scale or 1 / math.sqrt(query.shape[-1]))
    if softcap:
        scores = softcap * jnp.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias.astype(scores.dtype)
    chances = scores
    if sink is not None:
        last = jnp.broadcast_to(sink.reshape(1, -1, 1, 1), (*scores.shape[:3], 1))
        chances = jnp.concatenate([scores, last.astype(scores.dtype)], -1)
    chances = jax.nn.softmax(chances, -1)[..., : key.shape[2]]
    return jnp.einsum("bhqk,bhkd->bhqd", chances, value), scores


def mask_bias(mask, batch, queries, keys, filter_value):
    """Returns what a mask adds to scores: 0 for its ones, ``filter_value`` for its zeros.

    Its shape is ``[batch]`` (ends), ``[2 * batch]`` (ends, then starts), ``[batch, keys]``,
    ``[batch, queries, keys]``, or ``[batch, 1, most, most]``.
    """
    if mask is None:
        return None
    if mask.ndim == 1:
        bounds, places = mask.reshape(-1, batch, 1), jnp.arange(keys)
        mask = places < bounds[0]
        mask = mask & (places >= bounds[1]) if len(bounds) == 2 else mask
    if mask.ndim == 4:  # rows of all positions, of which the last are asked for
        mask = mask[:, :, keys - queries : keys, :keys]
    else:
        mask = mask[:, None] if mask.ndim == 3 else mask[:, None, None]
    value = -10000.0 if filter_value is None else filter_value
    return jnp.where(mask > 0, np.float32(0), np.float32(value))


def causal_bias(queries, keys):
    """Returns what hides later keys; the last query sees all keys."""
    visible = np.arange(keys) <= np.arange(queries)[:, None] + (keys - queries)
    return np.where(visible, np.float32(0), np.finfo(np.float32).min)


def total(*biases):
    """Returns the sum of the biases that are there, None without any."""
    biases = [x for x in biases if x is not None]
    return sum(biases[1:], biases[0]) if biases else None


def with_past(past, x):
    """Returns keys or values behind those of the past."""
    return x if past is None else jnp.concatenate([past, x], 2)


@lowers("com.microsoft::Attention")
def attention(
    input, weights, bias, mask_index, past, attention_bias, past_sequence_length, do_rotary,
    mask_filter_value, num_heads, past_present_share_buffer, qkv_hidden_sizes, rotary_embedding_dim,
    scale, unidirectional,
):  # fmt: skip
    """The projections of query, key and value are the columns of one matrix."""
    if do_rotary or past_present_share_buffer:
        refuse("Attention", "do_rotary or a shared buffer", "export it with GroupQueryAttention")
    projected = input @ weights
    projected = projected if bias is None else projected + bias
    widths = qkv_hidden_sizes or [projected.shape[-1] // 3] * 3
    return self_attention(
        projected, widths, mask_index, past, attention_bias, mask_filter_value, num_heads, scale,
        unidirectional,
    )  # fmt: skip


def self_attention(
    projected, widths, mask, past, attention_bias, filter_value, heads, scale, unidirectional
):
    """Returns the attention of projections that stand side by side, and keys and values."""
    projections = jnp.split(projected, np.cumsum(widths)[:2], -1)
    query, key, value = (heads_of(x, heads) for x in projections)
    if past is not None:
        key, value = with_past(past[0], key), with_past(past[1], value)
    shape = query.shape[2], key.shape[2]
    masked = mask_bias(mask, len(query), *shape, filter_value)
    causal = causal_bias(*shape) if unidirectional else None
    out, _ = attend(query, key, value, total(masked, causal, attention_bias), scale)
    return joined(out), lambda: jnp.stack([key, value])


@lowers("com.microsoft::MultiHeadAttention")
def multi_head_attention(
    query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value,
    past_sequence_length, cache_indirection, mask_filter_value, num_heads, scale, unidirectional,
):  # fmt: skip
    if past_sequence_length is not None or cache_indirection is not None:
        refuse("MultiHeadAttention", "a buffer for the past", "export it with past_key alone")
    query, key, value = biased(bias, *projections(query, key, value))
    query = heads_of(query, num_heads)
    key, value = (heads_of(x, num_heads) if x.ndim == 3 else x for x in (key, value))
    key, value = with_past(past_key, key), with_past(past_value, value)
    shape = query.shape[2], key.shape[2]
    masked = mask_bias(key_padding_mask, len(query), *shape, mask_filter_value)
    causal = causal_bias(*shape) if unidirectional else None
    out, scores = attend(query, key, value, total(masked, causal, attention_bias), scale)
    return joined(out), key, value, scores


def projections(query, key, value):
    """Returns query, key and value, of which the first may hold all three, the second both others:
    ``[batch, length, heads, 3, size]``, or 2.
    """
    flat = lambda x, i: x[:, :, :, i].reshape(*x.shape[:2], -1)
    if query.ndim == 5:
        return tuple(flat(query, i) for i in range(3))
    if value is None:
        return query, flat(key, 0), flat(key, 1)
    return query, key, value


def biased(bias, query, key, value):
    """Adds the parts of a bias; keys of another call, which have heads, have theirs already."""
    if bias is None:
        return query, key, value
    biases = jnp.split(bias, [query.shape[-1], 2 * query.shape[-1]])
    if key.ndim == 4:
        return query + biases[0], key, value
    return query + biases[0], key + biases[1], value + biases[2]


@lowers("com.microsoft::GroupQueryAttention")
def group_query_attention(
    query, key, value, past_key, past_value, seqlens_k, total_sequence_length: Static, cos_cache,
    sin_cache, position_ids, attention_bias, head_sink, k_scale, v_scale, q_norm_weight,
    k_norm_weight, query_seqlens, causal, do_rotary, k_norm_epsilon, k_quant_type,
    kv_cache_bit_width, kv_num_heads, local_window_size, num_heads, q_norm_epsilon,
    qk_norm_epsilon, qk_output, rotary_interleaved, scale, sliding_window_cache, smooth_softmax,
    softcap, v_quant_type,
):  # fmt: skip
    """``seqlens_k`` is the number of keys of each sequence less one. The caches are as long as the
    longest of the past and ``total_sequence_length``; a sequence's new keys follow its past ones.
    """
    further = k_scale, v_scale, query_seqlens, q_norm_weight, k_norm_weight
    if any(x is not None for x in further) or sliding_window_cache or qk_output:
        refuse("GroupQueryAttention", "norms, scores or quantized caches", "leave them out")
    query, key, value = grouped(query, key, value, num_heads, kv_num_heads)
    length, total = query.shape[1], int(total_sequence_length.item())
    past = jnp.maximum(seqlens_k.reshape(-1) + 1 - length, 0) * (length != total)
    positions = past[:, None] + jnp.arange(length)
    if do_rotary:
        at = positions if position_ids is None else position_ids
        how = cos_cache[at], sin_cache[at], rotary_interleaved
        query, key = rotated(query, *how), rotated(key, *how)
    query = jnp.swapaxes(query, 1, 2)
    key, value = cached(past_key, key, past, total), cached(past_value, value, past, total)
    bias = window_bias(positions, key.shape[2], causal, local_window_size, attention_bias)
    sink = jnp.zeros(num_heads) if head_sink is None and smooth_softmax == 1 else head_sink
    out, scores = attend(query, key, value, bias, scale, sink, softcap)
    return joined(out), key, value, scores


def grouped(query, key, value, heads, groups):
    """Returns query, key and value as ``[batch, length, heads, size]``; the first may hold all."""
    if key is None:
        size = query.shape[-1] // (heads + 2 * groups)
        query, key, value = jnp.split(query, [heads * size, (heads + groups) * size], -1)
    split = lambda x, count: x.reshape(*x.shape[:2], count, -1)
    return split(query, heads), split(key, groups), split(value, groups)


def window_bias(positions, keys, causal, window, bias):
    """Returns what hides keys from queries at positions ``[batch, length]``, plus another bias."""
    behind = positions[:, :, None] - jnp.arange(keys)
    visible = behind >= (0 if causal else -positions.shape[1])
    visible &= jnp.arange(keys) <= positions[:, -1:, None]
    if window > 0:
        visible &= behind < window
    hidden = jnp.where(visible, np.float32(0), np.finfo(np.float32).min)[:, None]
    if bias is None:
        return hidden
    return hidden + jnp.pad(bias, [(0, 0)] * 3 + [(0, keys - bias.shape[-1])])


def cached(cache, x, past, whole):
    """Returns a cache with new keys or values, ``[batch, length, heads, size]``, behind the past of
    each sequence.
    """
    x = jnp.swapaxes(x, 1, 2)
    if cache is None:
        cache = jnp.zeros((*x.shape[:2], 0, x.shape[3]), x.dtype)
    room = max(cache.shape[2], whole)
    places = jnp.arange(room)
    index = jnp.where(places < past[:, None], places, cache.shape[2] + places - past[:, None])
    both = jnp.concatenate([cache, x], 2)
    values = jnp.take_along_axis(both, index[:, None, :, None], 2, mode="clip")
    filled = (places < (past + x.shape[2])[:, None])[:, None, :, None]
    old = jnp.pad(cache, [(0, 0), (0, 0), (0, room - cache.shape[2]), (0, 0)])
    return jnp.where(filled, values, old)
