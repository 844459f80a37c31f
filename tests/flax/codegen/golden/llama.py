"""LlamaForCausalLM in Flax's nnx, written by anyjax from its PyTorch module."""

import dataclasses
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
from flax import nnx


@dataclasses.dataclass(frozen=True)
class LlamaConfig:
    rope_theta: float = 10000.0
    head_dim: int = 12
    hidden_size: int = 48
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    intermediate_size: int = 80
    rms_norm_eps: float = 1e-06
    vocab_size: int = 96
    num_hidden_layers: int = 3


class LlamaRotaryEmbedding(nnx.Module):
    def __init__(self, config: LlamaConfig, *, rngs: nnx.Rngs):
        self.inv_freq = nnx.Variable(
            1 / config.rope_theta ** (jnp.arange(0, config.head_dim, 2) / config.head_dim)
        )

    def __call__(self, position_ids):
        freqs = position_ids[..., None].astype(jnp.float32) * self.inv_freq[...]
        emb = jnp.concatenate([freqs, freqs], axis=-1)
        cos = jnp.cos(emb)
        sin = jnp.sin(emb)
        return cos, sin


class LlamaRMSNorm(nnx.Module):
    def __init__(self, hidden_size, eps, *, rngs: nnx.Rngs):
        self.variance_epsilon = eps
        self.weight = nnx.Param(jnp.ones((hidden_size,)))

    def __call__(self, hidden_states):
        variance = (hidden_states**2).mean(-1, keepdims=True)
        hidden_states = hidden_states * jax.lax.rsqrt(variance + self.variance_epsilon)
        return self.weight[...] * hidden_states


class LlamaAttention(nnx.Module):
    def __init__(self, config: LlamaConfig, *, rngs: nnx.Rngs):
        self.head_dim = config.head_dim
        self.q_proj = nnx.Linear(
            config.hidden_size,
            config.num_attention_heads * config.head_dim,
            use_bias=False,
            rngs=rngs,
        )
        self.k_proj = nnx.Linear(
            config.hidden_size,
            config.num_key_value_heads * config.head_dim,
            use_bias=False,
            rngs=rngs,
        )
        self.v_proj = nnx.Linear(
            config.hidden_size,
            config.num_key_value_heads * config.head_dim,
            use_bias=False,
            rngs=rngs,
        )
        self.o_proj = nnx.Linear(
            config.num_attention_heads * config.head_dim,
            config.hidden_size,
            use_bias=False,
            rngs=rngs,
        )

    def __call__(self, hidden_states, cos, sin, attention_mask):
        batch, length = hidden_states.shape[:2]
        query_states = (
            self.q_proj(hidden_states).reshape(batch, length, -1, self.head_dim).swapaxes(1, 2)
        )
        key_states = (
            self.k_proj(hidden_states).reshape(batch, length, -1, self.head_dim).swapaxes(1, 2)
        )
        value_states = self.v_proj(hidden_states).reshape(batch, length, -1, self.head_dim)
        cos = cos[:, None]
        sin = sin[:, None]
        query_states = (
            query_states * cos
            + jnp.concatenate(
                [-query_states[..., self.head_dim // 2 :], query_states[..., : self.head_dim // 2]],
                axis=-1,
            )
            * sin
        )
        key_states = (
            key_states * cos
            + jnp.concatenate(
                [-key_states[..., self.head_dim // 2 :], key_states[..., : self.head_dim // 2]],
                axis=-1,
            )
            * sin
        )
        attn_output = jax.nn.dot_product_attention(
            query_states.swapaxes(1, 2),
            key_states.swapaxes(1, 2),
            value_states,
            mask=attention_mask,
        )
        attn_output = attn_output.reshape(batch, length, -1)
        return self.o_proj(attn_output)


class LlamaMLP(nnx.Module):
    def __init__(self, config: LlamaConfig, *, rngs: nnx.Rngs):
        self.gate_proj = nnx.Linear(
            config.hidden_size, config.intermediate_size, use_bias=False, rngs=rngs
        )
        self.up_proj = nnx.Linear(
            config.hidden_size, config.intermediate_size, use_bias=False, rngs=rngs
        )
        self.down_proj = nnx.Linear(
            config.intermediate_size, config.hidden_size, use_bias=False, rngs=rngs
        )

    def __call__(self, x):
        return self.down_proj(nnx.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaDecoderLayer(nnx.Module):
    def __init__(self, config: LlamaConfig, *, rngs: nnx.Rngs):
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps, rngs=rngs)
        self.self_attn = LlamaAttention(config, rngs=rngs)
        self.post_attention_layernorm = LlamaRMSNorm(
            config.hidden_size, config.rms_norm_eps, rngs=rngs
        )
        self.mlp = LlamaMLP(config, rngs=rngs)

    def __call__(self, hidden_states, attention_mask, cos, sin):
        residual = hidden_states
        hidden_states = self.input_layernorm(hidden_states)
        hidden_states = self.self_attn(hidden_states, cos, sin, attention_mask)
        hidden_states = residual + hidden_states
        residual = hidden_states
        hidden_states = self.post_attention_layernorm(hidden_states)
        hidden_states = self.mlp(hidden_states)
        return residual + hidden_states


class LlamaModel(nnx.Module):
    def __init__(self, config: LlamaConfig, *, rngs: nnx.Rngs):
        self.embed_tokens = nnx.Embed(config.vocab_size, config.hidden_size, rngs=rngs)
        self.rotary_emb = LlamaRotaryEmbedding(config, rngs=rngs)
        self.layers = nnx.List(
            [LlamaDecoderLayer(config, rngs=rngs) for _ in range(config.num_hidden_layers)]
        )
        self.norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps, rngs=rngs)

    def __call__(self, input_ids, attention_mask):
        batch, length = input_ids.shape
        inputs_embeds = self.embed_tokens(input_ids)
        position_ids = jnp.arange(length)
        position_ids = position_ids[None]
        causal_mask = (jnp.arange(length) <= jnp.arange(length)[:, None]) & attention_mask.astype(
            jnp.bool_
        )[:batch, None, None]
        cos, sin = self.rotary_emb(position_ids)
        hidden_states = inputs_embeds
        for decoder_layer in self.layers:
            hidden_states = decoder_layer(hidden_states, causal_mask, cos, sin)
        return self.norm(hidden_states)


class LlamaForCausalLM(nnx.Module):
    def __init__(self, config: LlamaConfig = LlamaConfig(), *, rngs: nnx.Rngs):
        self.model = LlamaModel(config, rngs=rngs)
        self.lm_head = nnx.Linear(config.hidden_size, config.vocab_size, use_bias=False, rngs=rngs)

    def __call__(self, input_ids, attention_mask):
        """input_ids: int32 (batch, length)
        attention_mask: int32 (batch, length)
        """
        outputs = self.model(input_ids, attention_mask)
        return self.lm_head(outputs)


def load_params(model, weights):
    """Fills the model from a state dict of PyTorch, or from a file or folder of safetensors."""
    if not isinstance(weights, dict):
        weights = read_safetensors(weights)
    names = dict.fromkeys(("kernel", "scale", "embedding"), "weight")
    names |= {"mean": "running_mean", "var": "running_var"}
    state = nnx.to_flat_state(nnx.state(model, (nnx.Param, nnx.BatchStat)))
    wrong, read = [], set()
    for path, variable in state:
        *home, name = map(str, path)
        own, key = (".".join([*home, x]) for x in (name, names.get(name, name)))
        key = own if own in weights else key
        read.add(key)
        if key not in weights:
            wrong.append(f"{key} is missing")
            continue
        value = jnp.asarray(weights[key])
        if name == "kernel" and key != own and value.ndim > 1:
            value = value.transpose(*range(2, value.ndim), 1, 0)
        if value.shape == variable.shape:
            variable[...] = value
        else:
            wrong.append(f"{key} has the shape {value.shape}, not {variable.shape}")
    wrong += [f"{name} has no place" for name in weights if name not in read]
    if wrong:
        raise ValueError("\n".join(["the weights do not fit:", *wrong]))
    nnx.update(model, nnx.from_flat_state(state))
    return model


def read_safetensors(path):
    """The arrays in a safetensors file, or in those of a folder, by name."""
    kinds = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}
    arrays = {}
    path = pathlib.Path(path)
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
        data = file.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        entries = json.loads(data[8:begin])
        entries.pop("__metadata__", None)
        for name, entry in entries.items():
            start, stop = entry["data_offsets"]
            array = jnp.frombuffer(data[begin + start : begin + stop], kinds[entry["dtype"]])
            arrays[name] = array.reshape(entry["shape"])
    return arrays


def check(weights, example):
    """How far outputs are from those in an .npz file, relative to the largest value of each.

    The file has the inputs by their names, and the outputs as output_0, output_1, ...
    """
    given = {name: jnp.asarray(array) for name, array in jnp.load(example).items()}
    count = sum(name.startswith("output_") for name in given)
    wanted = [given.pop(f"output_{i}") for i in range(count)]
    model = load_params(LlamaForCausalLM(rngs=nnx.Rngs(0)), weights)
    model.eval()
    found = model(**given)
    return max(
        float(abs(mine - want).max() / max(abs(want).max(), 1e-6))
        for mine, want in zip(leaves(found), wanted, strict=True)
    )


def leaves(value):
    """The arrays of floats in an output, in its order."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value] if jnp.issubdtype(value.dtype, jnp.floating) else []


if __name__ == "__main__":
    weights, example = sys.argv[1:]
    off = check(weights, example)
    print(f"outputs differ from those in {example} by {off:.1e} of their largest value")
    sys.exit(off > 1e-3)
