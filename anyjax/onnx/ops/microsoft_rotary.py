"""Rotary positions, and biases that depend on distances."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from anyjax.onnx.core.schema import Static, lowers


def rotated(x, cos, sin, interleaved):
    """Rotates pairs of the first elements of each head.

    Args:
      x: ``[batch, length, heads, size]``.
      cos, sin: ``[batch, length, pairs]``; pairs are neighbours if ``interleaved``, else an element
        of the first half and one of the second.
    """
    cos, sin = (v[:, :, None].astype(x.dtype) for v in (cos, sin))
    turned, rest = jnp.split(x, [2 * cos.shape[-1]], -1)
    if interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
    else:
        a, b = jnp.split(turned, 2, -1)
    pair = a * cos - b * sin, a * sin + b * cos
    if interleaved:
        both = jnp.stack(pair, -1).reshape(turned.shape)
    else:
        both = jnp.concatenate(pair, -1)
    return jnp.concatenate([both, rest], -1)


@lowers("com.microsoft::RotaryEmbedding")
def rotary_embedding(
    input, position_ids, cos_cache, sin_cache, interleaved, is_packed_batching, num_heads,
    rotary_embedding_dim, scale,
):  # fmt: skip
    """A single position is that of the first token."""
    if input.ndim == 4:
        x = jnp.swapaxes(input, 1, 2)
    else:
        size = 2 * cos_cache.shape[1]
        if rotary_embedding_dim:
            size = input.shape[-1] // num_heads
        x = input.reshape(*input.shape[:2], -1, size)
    if position_ids.ndim == 1:
        position_ids = (position_ids + jnp.arange(x.shape[1]))[None]
    out = rotated(x, cos_cache[position_ids], sin_cache[position_ids], interleaved)
    return jnp.swapaxes(out, 1, 2) if input.ndim == 4 else out.reshape(input.shape)


@lowers("com.microsoft::GemmaRotaryEmbedding")
def gemma_rotary_embedding(emb, q, q_rot, k, k_rot):
    cos, sin = (f(emb)[:, None].astype(q.dtype) for f in (jnp.cos, jnp.sin))
    return q * cos + q_rot * sin, k * cos + k_rot * sin


@lowers("com.microsoft::RelativePositionBias")
def relative_position_bias(
    bias_table, query_length: Static, key_length: Static, is_bidirectional, max_distance
):
    """Buckets of distances: exact ones for near keys, logarithmic ones for far keys, as in T5."""
    queries, keys = int(query_length.item()), int(key_length.item())
    distance = np.arange(keys) - np.arange(queries)[:, None]
    count, bucket = bias_table.shape[0], np.zeros_like(distance)
    if is_bidirectional:
        count //= 2
        bucket, distance = count * (distance > 0), np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = count // 2
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / exact) / np.float32(
        np.log(np.float32(max_distance) / exact)
    )
    far = np.minimum(exact + (ratio * (count - exact)).astype(int), count - 1)
    bucket = bucket + np.where(distance < exact, distance, far)
    return jnp.moveaxis(bias_table[bucket], -1, 0)[None]
