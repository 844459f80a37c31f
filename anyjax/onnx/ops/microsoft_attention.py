"""Attention of onnxruntime: packed projections, masks of many shapes, caches."""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np

from anyjax.errors import Unsupported
from anyjax.numerics.attention import attend, form_of, pairs, plain, row_weights
from anyjax.onnx.core.schema import Static, lowers
from anyjax.onnx.ops.attention import hiding, limited, with_past
from anyjax.onnx.ops.microsoft_rotary import rotated

HIDDEN = -10000.0  # what is added to scores that a mask hides, unless the model says otherwise
ABSORBING = -1e9  # scores that have this or less added are all the same


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


def attention_of(query, key, value, limits, scale, mask=None, filter_value=None, bias=None):
    """Returns the attention, ``[batch, length, heads * size]``, and a function that returns its
    scores before the softmax.

    Args:
      query, key, value: ``[batch, heads, length, size]``.
      limits: of the form.
      scale: of the scores; None or 0 is ``1 / sqrt(size)``.
      mask: True where a query sees a key; ``filter_value`` is added to other scores, so that a
        query which sees no key is as one that sees them all.
      bias: added to the scores, or None.
    """
    form = form_of(query, scale or None, **limits)
    low = HIDDEN if filter_value is None else filter_value
    biases = [] if mask is None else [jnp.where(mask, np.float32(0), np.float32(low))]
    biases = biases if bias is None else [sum(biases, bias)]
    fits = not form.causal and bias is None and (low == HIDDEN or low <= ABSORBING)
    if mask is not None and fits:
        blind = ~mask.any(-1, keepdims=True)
        out = attend(form, query, key, value, mask | blind)
        out = out if low == HIDDEN else jnp.where(blind, value.mean(2, keepdims=True), out)
    else:
        out = attend(form, query, key, value, *biases)
    return joined(out.astype(query.dtype)), lambda: scores_of(form, query, key, *biases)


def scores_of(form, query, key, *biases):
    """Returns the scores before the softmax; those of hidden keys are the lowest number."""
    scores = plain.unfold(plain.scores_of(form, query, key, *biases)[0], query.shape[2])
    return jnp.maximum(scores, jnp.finfo(query.dtype).min).astype(query.dtype)


def mask_of(mask, batch, queries, keys):
    """Returns a mask that broadcasts to ``[batch, heads, queries, keys]``, True for its ones.

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
        return mask[:, :, keys - queries : keys, :keys] > 0
    return (mask[:, None] if mask.ndim == 3 else mask[:, None, None]) > 0


def causal_behind(past):
    """Returns the limits of queries that stand behind the keys of the past."""
    return {"causal": True, "shift": 0 if past is None else past.shape[2]}


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
    mask = mask_of(mask, len(query), query.shape[2], key.shape[2])
    limits = causal_behind(None if past is None else past[0]) if unidirectional else {}
    how = limits, scale, mask, filter_value, attention_bias
    return attention_of(query, key, value, *how)[0], lambda: jnp.stack([key, value])


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
    mask = mask_of(key_padding_mask, len(query), query.shape[2], key.shape[2])
    limits = causal_behind(past_key) if unidirectional else {}
    how = limits, scale, mask, mask_filter_value, attention_bias
    out, scores = attention_of(query, key, value, *how)
    return out, key, value, scores


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
    seen = total if length == total else key.shape[2]
    sides = local_window_size - 1 if local_window_size > 0 else -1, 0 if causal else -1
    limits, masks = limited((length, seen), *sides, 0, None if length == total else past + length)
    if attention_bias is not None:
        masks = *masks, hiding(attention_bias[..., :seen], seen)
    form = form_of(query, scale or None, cap=softcap or None, **limits)
    sink = jnp.zeros(num_heads) if head_sink is None and smooth_softmax == 1 else head_sink
    by = attend if sink is None else partial(attend_with_sink, sink)
    out = by(form, query, key[:, :, :seen], value[:, :, :seen], *masks)
    return joined(out).astype(query.dtype), key, value


def grouped(query, key, value, heads, groups):
    """Returns query, key and value as ``[batch, length, heads, size]``; the first may hold all."""
    if key is None:
        size = query.shape[-1] // (heads + 2 * groups)
        query, key, value = jnp.split(query, [heads * size, (heads + groups) * size], -1)
    split = lambda x, count: x.reshape(*x.shape[:2], count, -1)
    return split(query, heads), split(key, groups), split(value, groups)


def attend_with_sink(sink, form, query, key, value, *masks):
    """Returns an attention in which a score of each head takes part in the softmax alone."""
    scores, _ = plain.scores_of(form, query, key, *masks)
    last = jnp.broadcast_to(sink.reshape(-1, 1, 1), (*query.shape[:3], 1)).astype(scores.dtype)
    scores = jnp.concatenate([scores, plain.fold(last, key.shape[1])], -1)
    weights = row_weights(scores)[0][..., :-1].astype(value.dtype)
    return plain.unfold(pairs(weights, value, (1, 0)), query.shape[2])


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
