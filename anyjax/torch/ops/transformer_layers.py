"""Attention and the encoder layer of torch.nn as TorchScript has them: one operator each."""

from functools import partial

import jax
import jax.numpy as jnp

from anyjax.numerics.attention import attend, form_of, plain, row_weights
from anyjax.torch.core.schema import aten, lowers
from anyjax.torch.ops.matmul import linear
from anyjax.torch.ops.norm import native_layer_norm


@lowers(aten._native_multi_head_attention)
def native_multi_head_attention(
    query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
    need_weights, average_attn_weights, mask_type,
):  # fmt: skip
    """nn.MultiheadAttention in TorchScript. True in a mask is left out; its type is 0 for
    [length, length], 1 for [batch, length], 2 for all dimensions. A row that sees nothing is NaN.
    """
    projections = zip((query, key, value), jnp.split(qkv_weight, 3), jnp.split(qkv_bias, 3))
    q, k, v = (
        jnp.moveaxis(linear(*x).reshape(*query.shape[:2], num_head, -1), 2, 1) for x in projections
    )
    form, masks, marked = form_of(q), (), lambda x: x
    if mask is not None:
        hidden = mask.astype(bool)[:, None, None] if mask_type == 1 else mask.astype(bool)
        masks = (~hidden,)
        marked = lambda x: jnp.where(hidden.all(-1, keepdims=True), jnp.nan, x)
    out = jnp.moveaxis(marked(attend(form, q, k, v, *masks)), 1, 2).reshape(query.shape)
    weights = None
    if need_weights:
        weights = marked(row_weights(plain.scores_of(form, q, k, *masks)[0])[0]).astype(q.dtype)
        weights = weights.mean(1) if average_attn_weights else weights
    return linear(out, proj_weight, proj_bias), weights


@lowers(aten._transformer_encoder_layer_fwd)
def transformer_encoder_layer_fwd(
    src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first,
    eps, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1,
    ffn_weight_2, ffn_bias_2, mask, mask_type,
):  # fmt: skip
    """nn.TransformerEncoderLayer in TorchScript."""
    activation = partial(jax.nn.gelu, approximate=False) if use_gelu else jax.nn.relu
    heads = (embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask)
    attend = lambda x: native_multi_head_attention(x, x, x, *heads, False, True, mask_type)[0]
    inside = lambda x: activation(linear(x, ffn_weight_1, ffn_bias_1))
    feed = lambda x: linear(inside(x), ffn_weight_2, ffn_bias_2)
    norm = lambda x, *affine: native_layer_norm(x, [embed_dim], *affine, eps)[0]
    first, second = (norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2)
    if norm_first:
        src = src + attend(norm(src, *first))
        return src + feed(norm(src, *second))
    src = norm(src + attend(src), *first)
    return norm(src + feed(src), *second)
