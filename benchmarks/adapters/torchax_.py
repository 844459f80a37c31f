"""torchax: extract_jax and jax.jit; for decoding a jitted step over a static cache, looped in
Python.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
import torchax
from torchax import interop
from transformers import StaticCache

from adapters import RATE


def forward(module, inputs):
    weights, func = torchax.extract_jax(module)
    inputs = {k: jnp.asarray(x.numpy()) for k, x in inputs.items()}
    options = {"use_cache": False} if "input_ids" in inputs else {}
    fn = jax.jit(lambda weights, inputs: func(weights, (), inputs | options).logits)
    return lambda: np.asarray(fn(weights, inputs))


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


def train(module):
    weights, func = torchax.extract_jax(module)
    names = {name for name, _ in module.named_parameters()}
    weights = {k: jnp.asarray(v) for k, v in weights.items()}
    params = {k: v for k, v in weights.items() if k in names}
    rest = {k: v for k, v in weights.items() if k not in names}
    tx = optax.adam(RATE)
    opt_state = tx.init(params)

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(params, opt_state, ids):
        def loss(params):
            out = func({**params, **rest}, (ids,), {"use_cache": False}).logits
            losses = optax.softmax_cross_entropy_with_integer_labels(out[:, :-1], ids[:, 1:])
            return losses.mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    def call(ids):
        nonlocal params, opt_state
        params, opt_state, value = step(params, opt_state, ids)
        return float(value)

    return call
