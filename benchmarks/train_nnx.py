"""A Llama as one would write it in nnx, with the names of transformers' so that weights fit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx


def rotated(x, cos, sin):
    a, b = jnp.split(x, 2, -1)
    return x * cos + jnp.concatenate([-b, a], -1) * sin


class Attention(nnx.Module):
    def __init__(self, config, rngs):
        width, self.heads = config.hidden_size, config.num_attention_heads
        linear = lambda: nnx.Linear(width, width, use_bias=False, rngs=rngs)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (linear() for _ in range(4))

    def __call__(self, x, cos, sin):
        heads = lambda y: y.reshape(*y.shape[:2], self.heads, -1)
        q, k, v = heads(self.q_proj(x)), heads(self.k_proj(x)), heads(self.v_proj(x))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        return self.o_proj(jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape))


class Mlp(nnx.Module):
    def __init__(self, config, rngs):
        sizes = config.hidden_size, config.intermediate_size
        linear = lambda a, b: nnx.Linear(a, b, use_bias=False, rngs=rngs)
        self.gate_proj, self.up_proj = linear(*sizes), linear(*sizes)
        self.down_proj = linear(*sizes[::-1])

    def __call__(self, x):
        return self.down_proj(nnx.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nnx.Module):
    def __init__(self, config, rngs):
        norm = lambda: nnx.RMSNorm(config.hidden_size, epsilon=config.rms_norm_eps, rngs=rngs)
        self.self_attn, self.mlp = Attention(config, rngs), Mlp(config, rngs)
        self.input_layernorm, self.post_attention_layernorm = norm(), norm()

    def __call__(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nnx.Module):
    def __init__(self, config, rngs):
        self.embed_tokens = nnx.Embed(config.vocab_size, config.hidden_size, rngs=rngs)
        self.layers = nnx.List([Layer(config, rngs) for _ in range(config.num_hidden_layers)])
        self.norm = nnx.RMSNorm(config.hidden_size, epsilon=config.rms_norm_eps, rngs=rngs)
        self.size = config.hidden_size // config.num_attention_heads

    def __call__(self, ids):
        powers = jnp.arange(0, self.size, 2) / self.size
        angle = jnp.arange(ids.shape[1])[:, None] / 10000.0**powers
        cos, sin = (jnp.tile(f(angle), 2)[:, None, :] for f in (jnp.cos, jnp.sin))
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class Llama(nnx.Module):
    def __init__(self, config, rngs):
        self.model = Model(config, rngs)
        self.lm_head = nnx.Linear(config.hidden_size, config.vocab_size, use_bias=False, rngs=rngs)

    def __call__(self, ids):
        return self.lm_head(self.model(ids))
