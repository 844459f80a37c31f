"""GPT2LMHeadModel in Flax's nnx, written by anyjax from its PyTorch module."""

import dataclasses
import json
import pathlib
import re
import sys

import jax
import jax.numpy as jnp
from flax import nnx


def attention_with_dropout(
    query, key, value, dropout, mask=None, bias=None, is_causal=False, scale=None
):
    """JAX's dot_product_attention with dropout of the probabilities."""
    if dropout.deterministic:
        return jax.nn.dot_product_attention(
            query, key, value, bias, mask, scale=scale, is_causal=is_causal
        )
    groups = query.shape[2] // key.shape[2]
    key, value = (jnp.repeat(x, groups, axis=2) for x in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * scale + (0 if bias is None else bias)
    if is_causal:
        mask = jnp.tri(*scores.shape[-2:], dtype=bool)
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    return jnp.einsum("bhqk,bkhd->bqhd", dropout(nnx.softmax(scores)), value)


@dataclasses.dataclass(frozen=True)
class GPT2Config:
    hidden_size: int = 48
    num_attention_heads: int = 4
    attn_pdrop: float = 0.1
    resid_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-05
    vocab_size: int = 96
    max_position_embeddings: int = 64
    embd_pdrop: float = 0.1
    num_hidden_layers: int = 3


class Conv1D(nnx.Module):
    def __init__(self, nf, nx, *, rngs: nnx.Rngs):
        self.bias = nnx.Param(jnp.zeros((nf,)))
        self.nx = nx
        self.nf = nf
        self.weight = nnx.Param(rngs.params.normal((nx, nf)) * 0.02)

    def __call__(self, x):
        batch, length = x.shape[:2]
        x = self.bias[...] + x.reshape(-1, self.nx) @ self.weight[...]
        return x.reshape(batch, length, self.nf)


class GPT2Attention(nnx.Module):
    def __init__(self, config: GPT2Config, *, rngs: nnx.Rngs):
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.c_attn = Conv1D(3 * config.hidden_size, config.hidden_size, rngs=rngs)
        self.attn_dropout = nnx.Dropout(config.attn_pdrop, rngs=rngs)
        self.c_proj = Conv1D(config.hidden_size, config.hidden_size, rngs=rngs)
        self.resid_dropout = nnx.Dropout(config.resid_pdrop, rngs=rngs)

    def __call__(self, hidden_states, attention_mask):
        batch, length = hidden_states.shape[:2]
        query_states, key_states, value_states = jnp.split(self.c_attn(hidden_states), 3, axis=2)
        key_states = key_states.reshape(batch, length, -1, self.head_dim)
        value_states = value_states.reshape(batch, length, -1, self.head_dim)
        query_states = query_states.reshape(batch, length, -1, self.head_dim)
        attn_output = attention_with_dropout(
            query_states, key_states, value_states, self.attn_dropout, mask=attention_mask
        )
        attn_output = attn_output.reshape(batch, length, -1)
        attn_output = self.c_proj(attn_output)
        return self.resid_dropout(attn_output)


class GPT2MLP(nnx.Module):
    def __init__(self, config: GPT2Config, intermediate_size, *, rngs: nnx.Rngs):
        self.c_fc = Conv1D(intermediate_size, config.hidden_size, rngs=rngs)
        self.c_proj = Conv1D(config.hidden_size, intermediate_size, rngs=rngs)
        self.dropout = nnx.Dropout(config.resid_pdrop, rngs=rngs)

    def __call__(self, hidden_states):
        hidden_states = self.c_fc(hidden_states)
        hidden_states = nnx.gelu(hidden_states)
        hidden_states = self.c_proj(hidden_states)
        return self.dropout(hidden_states)


class GPT2Block(nnx.Module):
    def __init__(self, config: GPT2Config, *, rngs: nnx.Rngs):
        self.ln_1 = nnx.LayerNorm(config.hidden_size, epsilon=config.layer_norm_epsilon, rngs=rngs)
        self.attn = GPT2Attention(config, rngs=rngs)
        self.ln_2 = nnx.LayerNorm(config.hidden_size, epsilon=config.layer_norm_epsilon, rngs=rngs)
        self.mlp = GPT2MLP(config, 4 * config.hidden_size, rngs=rngs)

    def __call__(self, hidden_states, attention_mask):
        residual = hidden_states
        hidden_states = self.ln_1(hidden_states)
        attn_output = self.attn(hidden_states, attention_mask)
        hidden_states = attn_output + residual
        residual = hidden_states
        hidden_states = self.ln_2(hidden_states)
        feed_forward_hidden_states = self.mlp(hidden_states)
        return residual + feed_forward_hidden_states


class GPT2Model(nnx.Module):
    def __init__(self, config: GPT2Config, *, rngs: nnx.Rngs):
        self.wte = nnx.Embed(config.vocab_size, config.hidden_size, rngs=rngs)
        self.wpe = nnx.Embed(config.max_position_embeddings, config.hidden_size, rngs=rngs)
        self.drop = nnx.Dropout(config.embd_pdrop, rngs=rngs)
        self.h = nnx.List([GPT2Block(config, rngs=rngs) for _ in range(config.num_hidden_layers)])
        self.ln_f = nnx.LayerNorm(config.hidden_size, epsilon=config.layer_norm_epsilon, rngs=rngs)

    def __call__(self, input_ids, attention_mask):
        length = input_ids.shape[1]
        inputs_embeds = self.wte(input_ids)
        position_ids = jnp.arange(length)
        position_ids = position_ids[None]
        position_embeds = self.wpe(position_ids)
        hidden_states = inputs_embeds + position_embeds
        causal_mask = (jnp.arange(length) <= jnp.arange(length)[:, None]) & attention_mask.astype(
            jnp.bool_
        )[:, None, None]
        hidden_states = self.drop(hidden_states)
        for block in self.h:
            hidden_states = block(hidden_states, causal_mask)
        return self.ln_f(hidden_states)


class GPT2LMHeadModel(nnx.Module):
    def __init__(self, config: GPT2Config = GPT2Config(), *, rngs: nnx.Rngs):
        self.transformer = GPT2Model(config, rngs=rngs)

    def __call__(self, input_ids, attention_mask):
        """input_ids: int32 (batch, length)
        attention_mask: int32 (batch, length)
        """
        transformer_outputs = self.transformer(input_ids, attention_mask)
        return transformer_outputs @ self.transformer.wte.embedding[...].T


# Weights of PyTorch's that nothing here reads; * stands for a number.
UNREAD = {"lm_head.weight"}


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
    wrong += [
        f"{name} has no place"
        for name in weights
        if name not in read and re.sub(r"\d+", "*", name) not in UNREAD
    ]
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
    model = load_params(GPT2LMHeadModel(rngs=nnx.Rngs(0)), weights)
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
