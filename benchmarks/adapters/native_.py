"""JAX by hand, as an expert would write these two architectures: the anchor for steady times."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from adapters import RATE


def weights_of(module):
    return {k: jnp.asarray(v.detach().numpy()) for k, v in module.state_dict().items()}


def dense(x, weight):
    return jax.lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))


causal = partial(jax.nn.dot_product_attention, is_causal=True)


def gpt2(config, p, ids, attend=causal):
    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + config.layer_norm_epsilon)
        return x * scale * p[name + ".weight"] + p[name + ".bias"]

    def conv1d(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    x = p["transformer.wte.weight"][ids] + p["transformer.wpe.weight"][: ids.shape[1]]
    split = lambda t: t.reshape(*t.shape[:2], config.n_head, -1)
    for i in range(config.n_layer):
        at = f"transformer.h.{i}."
        q, k, v = map(split, jnp.split(conv1d(norm(x, at + "ln_1"), at + "attn.c_attn"), 3, -1))
        mixed = attend(q, k, v).reshape(x.shape)
        x = x + conv1d(mixed, at + "attn.c_proj")
        hidden = jax.nn.gelu(conv1d(norm(x, at + "ln_2"), at + "mlp.c_fc"), approximate=True)
        x = x + conv1d(hidden, at + "mlp.c_proj")
    return dense(norm(x, "transformer.ln_f"), p["transformer.wte.weight"])


def llama(config, p, ids, cache, start, loop=False, every=False):
    """Logits of the last (or ``every``) position, and the cache [(keys, values)] of shape [batch,
    length, heads, width]. As a ``loop`` the weights of layers and the cache are stacks.
    """
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    width = config.hidden_size // heads
    at = start + jnp.arange(ids.shape[1])
    angle = at[:, None] / 10000.0 ** (jnp.arange(0, width, 2) / width)
    cos, sin = (jnp.tile(f(angle), 2)[:, None] for f in (jnp.cos, jnp.sin))

    def rotate(t):
        one, two = jnp.split(t, 2, -1)
        return t * cos + jnp.concatenate([-two, one], -1) * sin

    def norm(x, weight):
        scale = jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + config.rms_norm_eps)
        return x * scale * weight

    def layer(x, given):
        w, (keys, values) = given
        h = norm(x, w["input_layernorm.weight"])
        project = lambda kind, n: dense(h, w[f"self_attn.{kind}_proj.weight"]).reshape(
            *h.shape[:2], n, width
        )
        q, k, v = rotate(project("q", heads)), rotate(project("k", groups)), project("v", groups)
        keys = jax.lax.dynamic_update_slice_in_dim(keys, k, start, 1)
        values = jax.lax.dynamic_update_slice_in_dim(values, v, start, 1)
        mask = jnp.arange(keys.shape[1]) <= at[:, None]
        mixed = jax.nn.dot_product_attention(q, keys, values, mask=mask[None, None])
        x = x + dense(mixed.reshape(*x.shape[:2], -1), w["self_attn.o_proj.weight"])
        h = norm(x, w["post_attention_layernorm.weight"])
        gate, up = (dense(h, w[f"mlp.{kind}_proj.weight"]) for kind in ("gate", "up"))
        return x + dense(jax.nn.silu(gate) * up, w["mlp.down_proj.weight"]), (keys, values)

    x = p["model.embed_tokens.weight"][ids]
    if loop:
        x, kept = jax.lax.scan(layer, x, (p["model.layers"], cache))
    else:
        kept = []
        for given in zip(p["model.layers"], cache):
            x, new = layer(x, given)
            kept.append(new)
    x = x if every else x[:, -1]
    return dense(norm(x, p["model.norm.weight"]), p["lm_head.weight"]), kept


def forward(module, inputs):
    config, p, ids = module.config, weights_of(module), jnp.asarray(inputs["input_ids"].numpy())
    if config.model_type == "llama":
        p = by_layer(p, config.num_hidden_layers)
        empty = lambda: empty_cache(config, *ids.shape)
        fn = jax.jit(lambda p, ids: llama(config, p, ids, empty(), 0, every=True)[0])
    else:
        fn = jax.jit(lambda p, ids: gpt2(config, p, ids))
    return lambda: np.asarray(fn(p, ids))


def empty_cache(config, batch, length):
    width = config.hidden_size // config.num_attention_heads
    shape = (batch, length, config.num_key_value_heads, width)
    return [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(config.num_hidden_layers)]


def by_layer(p, layers):
    """The same weights, those of each layer in a dict of its own."""
    start = "model.layers."
    of = lambda i: {
        k.removeprefix(f"{start}{i}."): x for k, x in p.items() if k.startswith(f"{start}{i}.")
    }
    rest = {k: x for k, x in p.items() if not k.startswith(start)}
    return rest | {"model.layers": [of(i) for i in range(layers)]}


def generate(module, ids, new, loop=False):
    config, ids = module.config, jnp.asarray(ids.numpy())
    layers = config.num_hidden_layers
    p = by_layer(weights_of(module), layers)
    stack = lambda trees: jax.tree.map(lambda *x: jnp.stack(x), *trees)
    p["model.layers"] = stack(p["model.layers"]) if loop else p["model.layers"]
    batch, length = ids.shape

    @jax.jit
    def run(p, ids):
        cache = empty_cache(config, batch, length + new)
        cache = stack(cache) if loop else cache
        logits, cache = llama(config, p, ids, cache, 0, loop)

        def step(carry, at):
            token, cache = carry
            logits, cache = llama(config, p, token[:, None], cache, at, loop)
            return (logits.argmax(-1), cache), token

        (last, _), out = jax.lax.scan(
            step, (logits.argmax(-1), cache), length + jnp.arange(new - 1)
        )
        return jnp.concatenate([ids, out.T, last[:, None]], 1)

    return lambda: np.asarray(run(p, ids))


def train(module):
    import optax
    from flax import nnx
    from train_nnx import Llama

    import anyjax

    model = anyjax.flax.load_into(Llama(module.config, nnx.Rngs(0)), module)
    model = model[0] if isinstance(model, tuple) else model
    optimizer = nnx.Optimizer(model, optax.adam(RATE), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, ids):
        def loss(model):
            losses = optax.softmax_cross_entropy_with_integer_labels(model(ids)[:, :-1], ids[:, 1:])
            return losses.mean()

        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value

    cached = nnx.cached_partial(step, model, optimizer)
    return lambda ids: float(cached(ids))
