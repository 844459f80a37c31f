"""MixtralForCausalLM in Flax's nnx, written by anyjax from its PyTorch module."""

import dataclasses
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
from flax import nnx


@dataclasses.dataclass(frozen=True)
class MixtralConfig:
    rope_theta: float = 1000000.0
    hidden_size: int = 48
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    num_local_experts: int = 5
    intermediate_size: int = 80
    rms_norm_eps: float = 1e-05
    vocab_size: int = 96
    num_hidden_layers: int = 3


class MixtralRotaryEmbedding(nnx.Module):
    def __init__(self, config: MixtralConfig, *, rngs: nnx.Rngs):
        self.inv_freq = nnx.Variable(
            1
            / config.rope_theta
            ** (
                jnp.arange(0, config.hidden_size // config.num_attention_heads, 2)
                / (config.hidden_size // config.num_attention_heads)
            )
        )

    def __call__(self, position_ids):
        freqs = position_ids[..., None].astype(jnp.float32) * self.inv_freq[...]
        emb = jnp.concatenate([freqs, freqs], axis=-1)
        cos = jnp.cos(emb)
        sin = jnp.sin(emb)
        return cos, sin


class MixtralRMSNorm(nnx.Module):
    def __init__(self, hidden_size, eps, *, rngs: nnx.Rngs):
        self.variance_epsilon = eps
        self.weight = nnx.Param(jnp.ones((hidden_size,)))

    def __call__(self, hidden_states):
        variance = (hidden_states**2).mean(-1, keepdims=True)
        hidden_states = hidden_states * jax.lax.rsqrt(variance + self.variance_epsilon)
        return self.weight[...] * hidden_states


class MixtralAttention(nnx.Module):
    def __init__(self, config: MixtralConfig, *, rngs: nnx.Rngs):
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.q_proj = nnx.Linear(
            config.hidden_size,
            config.num_attention_heads * self.head_dim,
            use_bias=False,
            rngs=rngs,
        )
        self.k_proj = nnx.Linear(
            config.hidden_size,
            config.num_key_value_heads * self.head_dim,
            use_bias=False,
            rngs=rngs,
        )
        self.v_proj = nnx.Linear(
            config.hidden_size,
            config.num_key_value_heads * self.head_dim,
            use_bias=False,
            rngs=rngs,
        )
        self.o_proj = nnx.Linear(
            config.num_attention_heads * self.head_dim,
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


class MixtralTopKRouter(nnx.Module):
    def __init__(self, config: MixtralConfig, *, rngs: nnx.Rngs):
        self.weight = nnx.Param(
            rngs.params.normal((config.num_local_experts, config.hidden_size)) * 0.02
        )

    def __call__(self, hidden_states):
        router_logits = hidden_states @ self.weight[...].T
        router_probs = nnx.softmax(router_logits)
        router_top_value, router_indices = jax.lax.top_k(router_probs, 2)
        router_top_value = router_top_value / router_top_value.sum(-1, keepdims=True)
        return router_indices, router_top_value


class MixtralExperts(nnx.Module):
    def __init__(self, config: MixtralConfig, *, rngs: nnx.Rngs):
        self.num_experts = config.num_local_experts
        self.hidden_dim = config.hidden_size
        self.gate_up_proj = nnx.Param(
            rngs.params.normal(
                (config.num_local_experts, 2 * config.intermediate_size, config.hidden_size)
            )
            * 0.02
        )
        self.down_proj = nnx.Param(
            rngs.params.normal(
                (config.num_local_experts, config.hidden_size, config.intermediate_size)
            )
            * 0.02
        )

    def __call__(self, hidden_states, top_k_index, top_k_weights):
        batch = hidden_states.shape[0]
        ordered, order = (
            jnp.sort(top_k_index.reshape(-1), axis=-1),
            jnp.argsort(top_k_index.reshape(-1), axis=-1),
        )
        counts = jnp.bincount(ordered, length=self.num_experts)
        first, second = jnp.split(
            jax.lax.ragged_dot(hidden_states[order // 2], self.gate_up_proj[...].mT, counts),
            2,
            axis=-1,
        )
        return (
            (
                jax.lax.ragged_dot(nnx.silu(first) * second, self.down_proj[...].mT, counts)
                * top_k_weights.reshape(-1)[order][:, None]
            )[jnp.zeros(2 * batch, jnp.int32).at[order].set(jnp.arange(2 * batch))]
            .reshape(batch, 2, self.hidden_dim)
            .sum(1)
        )


class MixtralSparseMoeBlock(nnx.Module):
    def __init__(self, config: MixtralConfig, *, rngs: nnx.Rngs):
        self.gate = MixtralTopKRouter(config, rngs=rngs)
        self.experts = MixtralExperts(config, rngs=rngs)

    def __call__(self, hidden_states):
        batch_size, sequence_length, hidden_dim = hidden_states.shape
        hidden_states = hidden_states.reshape(-1, hidden_dim)
        router_indices, router_top_value = self.gate(hidden_states)
        hidden_states = self.experts(hidden_states, router_indices, router_top_value)
        return hidden_states.reshape(batch_size, sequence_length, hidden_dim)


class MixtralDecoderLayer(nnx.Module):
    def __init__(self, config: MixtralConfig, *, rngs: nnx.Rngs):
        self.input_layernorm = MixtralRMSNorm(config.hidden_size, config.rms_norm_eps, rngs=rngs)
        self.self_attn = MixtralAttention(config, rngs=rngs)
        self.post_attention_layernorm = MixtralRMSNorm(
            config.hidden_size, config.rms_norm_eps, rngs=rngs
        )
        self.mlp = MixtralSparseMoeBlock(config, rngs=rngs)

    def __call__(self, hidden_states, cos, sin, attention_mask):
        residual = hidden_states
        hidden_states = self.input_layernorm(hidden_states)
        hidden_states = self.self_attn(hidden_states, cos, sin, attention_mask)
        hidden_states = residual + hidden_states
        residual = hidden_states
        hidden_states = self.post_attention_layernorm(hidden_states)
        hidden_states = self.mlp(hidden_states)
        return residual + hidden_states


class MixtralModel(nnx.Module):
    def __init__(self, config: MixtralConfig, *, rngs: nnx.Rngs):
        self.embed_tokens = nnx.Embed(config.vocab_size, config.hidden_size, rngs=rngs)
        self.rotary_emb = MixtralRotaryEmbedding(config, rngs=rngs)
        self.layers = nnx.List(
            [MixtralDecoderLayer(config, rngs=rngs) for _ in range(config.num_hidden_layers)]
        )
        self.norm = MixtralRMSNorm(config.hidden_size, config.rms_norm_eps, rngs=rngs)

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
            hidden_states = decoder_layer(hidden_states, cos, sin, causal_mask)
        return self.norm(hidden_states)


class MixtralForCausalLM(nnx.Module):
    def __init__(self, config: MixtralConfig = MixtralConfig(), *, rngs: nnx.Rngs):
        self.model = MixtralModel(config, rngs=rngs)
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
    model = load_params(MixtralForCausalLM(rngs=nnx.Rngs(0)), weights)
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
