"""torchax: extract_jax and jax.jit; for decoding a jitted step over a static cache, looped in
Python.
"""

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torchax
from torchax import interop
from transformers import StaticCache


def forward(module, ids):
    weights, func = torchax.extract_jax(module)
    ids = jnp.asarray(ids.numpy())
    fn = jax.jit(lambda weights, ids: func(weights, (ids,), {"use_cache": False}).logits)
    return lambda: np.asarray(fn(weights, ids))


def generate(module, ids, new):
    torchax.enable_globally()
    env, config = torchax.default_env(), module.config
    batch, length = ids.shape
    cache = StaticCache(config=config, max_cache_len=length + new)
    width = config.hidden_size // config.num_attention_heads
    with env:
        module.to("jax")
        cache.early_initialization(
            batch, config.num_key_value_heads, width, torch.float32, torch.device("jax")
        )
    weights = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    empty = [(layer.keys, layer.values) for layer in cache.layers]

    def step(weights, state, tokens, position):
        for layer, (keys, values) in zip(cache.layers, state, strict=True):
            layer.keys, layer.values, layer.cumulative_length = keys, values, position[0].clone()
        inputs = {
            "input_ids": tokens,
            "past_key_values": cache,
            "position_ids": position[None],
            "use_cache": True,
        }
        out = torch.func.functional_call(module, weights, (), inputs)
        return out.logits[:, -1].argmax(-1, keepdim=True), [
            (layer.keys, layer.values) for layer in cache.layers
        ]

    jitted = interop.jax_jit(step)

    def call():
        with env:
            state, token = empty, ids.to("jax")
            out, position = [token], torch.arange(length, device="jax")
            for i in range(new):
                token, state = jitted(weights, state, token, position)
                out.append(token)
                position = torch.full((1,), length + i, device="jax")
            return np.asarray(interop.jax_view(torch.cat(out, 1)))

    return call
