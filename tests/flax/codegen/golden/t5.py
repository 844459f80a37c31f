"""T5ForConditionalGeneration in Flax's nnx, written by anyjax from its PyTorch module."""

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
class T5Config:
    num_heads: int = 4
    d_kv: int = 12
    d_model: int = 48
    relative_attention_num_buckets: int = 32
    dropout_rate: float = 0.1
    layer_norm_epsilon: float = 1e-06
    d_ff: int = 80
    num_layers: int = 3


class T5LayerNorm(nnx.Module):
    def __init__(self, hidden_size, eps, *, rngs: nnx.Rngs):
        self.variance_epsilon = eps
        self.weight = nnx.Param(jnp.ones((hidden_size,)))

    def __call__(self, hidden_states):
        variance = (hidden_states**2).mean(-1, keepdims=True)
        hidden_states = hidden_states * jax.lax.rsqrt(variance + self.variance_epsilon)
        return self.weight[...] * hidden_states


class T5Attention(nnx.Module):
    def __init__(self, config: T5Config, has_relative_attention_bias, is_causal, *, rngs: nnx.Rngs):
        self.inner_dim = config.num_heads * config.d_kv
        self.key_value_proj_dim = config.d_kv
        self.scaling = 1.0
        self.n_heads = config.num_heads
        self.is_causal = is_causal
        self.has_relative_attention_bias = has_relative_attention_bias
        self.q = nnx.Linear(config.d_model, self.inner_dim, use_bias=False, rngs=rngs)
        self.k = nnx.Linear(config.d_model, self.inner_dim, use_bias=False, rngs=rngs)
        self.v = nnx.Linear(config.d_model, self.inner_dim, use_bias=False, rngs=rngs)
        self.relative_attention_bias = (
            nnx.Embed(config.relative_attention_num_buckets, config.num_heads, rngs=rngs)
            if has_relative_attention_bias
            else None
        )
        self.dropout = nnx.Dropout(config.dropout_rate, rngs=rngs)
        self.o = nnx.Linear(self.inner_dim, config.d_model, use_bias=False, rngs=rngs)

    def __call__(self, hidden_states, mask, key_value_states=None, position_bias=None):
        if key_value_states is None:
            key_value_states = hidden_states
        batch, length = hidden_states.shape[:2]
        width = mask.shape[3]
        query_states = self.q(hidden_states).reshape(batch, length, -1, self.key_value_proj_dim)
        key_states = self.k(key_value_states).reshape(batch, width, -1, self.key_value_proj_dim)
        value_states = self.v(key_value_states).reshape(batch, width, -1, self.key_value_proj_dim)
        if self.has_relative_attention_bias:
            sub = jnp.arange(length)[None] - jnp.arange(length)[:, None]
            if self.is_causal:
                neg = -jnp.minimum(sub, 0)
                add = (jnp.log(neg.astype(jnp.float32) / 16) / 2.0794415416798357 * 16).astype(
                    jnp.int32
                ) + 16
                position_bias = self.relative_attention_bias(
                    jnp.where(neg < 16, neg, jnp.minimum(add, 31))
                ).transpose(2, 0, 1)[None]
            else:
                abs_ = jnp.abs(sub)
                add = (jnp.log(abs_.astype(jnp.float32) / 8) / 2.772588722239781 * 8).astype(
                    jnp.int32
                ) + 8
                position_bias = self.relative_attention_bias(
                    (sub > 0).astype(jnp.int32) * 16
                    + jnp.where(abs_ < 8, abs_, jnp.minimum(add, 15))
                ).transpose(2, 0, 1)[None]
        elif position_bias is None:
            position_bias = jnp.zeros((1, self.n_heads, length, width))
        attn_output = attention_with_dropout(
            query_states,
            key_states,
            value_states,
            self.dropout,
            bias=jnp.where(mask, position_bias, jnp.finfo(jnp.float32).min),
            scale=self.scaling,
        )
        attn_output = attn_output.reshape(batch, length, -1)
        attn_output = self.o(attn_output)
        return position_bias, attn_output


class T5DenseActDense(nnx.Module):
    def __init__(self, config: T5Config, *, rngs: nnx.Rngs):
        self.wi = nnx.Linear(config.d_model, config.d_ff, use_bias=False, rngs=rngs)
        self.dropout = nnx.Dropout(config.dropout_rate, rngs=rngs)
        self.wo = nnx.Linear(config.d_ff, config.d_model, use_bias=False, rngs=rngs)

    def __call__(self, hidden_states):
        hidden_states = self.wi(hidden_states)
        hidden_states = nnx.relu(hidden_states)
        hidden_states = self.dropout(hidden_states)
        return self.wo(hidden_states)


class T5LayerSelfAttention(nnx.Module):
    def __init__(self, config: T5Config, has_relative_attention_bias, is_causal, *, rngs: nnx.Rngs):
        self.layer_norm = T5LayerNorm(config.d_model, config.layer_norm_epsilon, rngs=rngs)
        self.SelfAttention = T5Attention(
            config,
            has_relative_attention_bias=has_relative_attention_bias,
            is_causal=is_causal,
            rngs=rngs,
        )
        self.dropout = nnx.Dropout(config.dropout_rate, rngs=rngs)

    def __call__(self, hidden_states, attention_mask, position_bias=None):
        normed_hidden_states = self.layer_norm(hidden_states)
        position_bias, attn_output = self.SelfAttention(
            normed_hidden_states, attention_mask, position_bias=position_bias
        )
        attention_output = hidden_states + self.dropout(attn_output)
        return position_bias, attention_output


class T5LayerFF(nnx.Module):
    def __init__(self, config: T5Config, *, rngs: nnx.Rngs):
        self.layer_norm = T5LayerNorm(config.d_model, config.layer_norm_epsilon, rngs=rngs)
        self.DenseReluDense = T5DenseActDense(config, rngs=rngs)
        self.dropout = nnx.Dropout(config.dropout_rate, rngs=rngs)

    def __call__(self, hidden_states):
        forwarded_states = self.layer_norm(hidden_states)
        forwarded_states = self.DenseReluDense(forwarded_states)
        return hidden_states + self.dropout(forwarded_states)


class T5LayerCrossAttention(nnx.Module):
    def __init__(self, config: T5Config, *, rngs: nnx.Rngs):
        self.layer_norm = T5LayerNorm(config.d_model, config.layer_norm_epsilon, rngs=rngs)
        self.EncDecAttention = T5Attention(
            config, has_relative_attention_bias=False, is_causal=False, rngs=rngs
        )
        self.dropout = nnx.Dropout(config.dropout_rate, rngs=rngs)

    def __call__(self, hidden_states, key_value_states, attention_mask, position_bias=None):
        normed_hidden_states = self.layer_norm(hidden_states)
        position_bias, attn_output = self.EncDecAttention(
            normed_hidden_states,
            attention_mask,
            key_value_states=key_value_states,
            position_bias=position_bias,
        )
        layer_output = hidden_states + self.dropout(attn_output)
        return position_bias, layer_output


class T5Block(nnx.Module):
    def __init__(
        self, config: T5Config, is_decoder, has_relative_attention_bias, *, rngs: nnx.Rngs
    ):
        self.is_decoder = is_decoder
        self.layer = (
            nnx.List(
                [
                    T5LayerSelfAttention(
                        config,
                        has_relative_attention_bias=has_relative_attention_bias,
                        is_causal=True,
                        rngs=rngs,
                    ),
                    T5LayerCrossAttention(config, rngs=rngs),
                    T5LayerFF(config, rngs=rngs),
                ]
            )
            if is_decoder
            else nnx.List(
                [
                    T5LayerSelfAttention(
                        config,
                        has_relative_attention_bias=has_relative_attention_bias,
                        is_causal=False,
                        rngs=rngs,
                    ),
                    T5LayerFF(config, rngs=rngs),
                ]
            )
        )

    def __call__(
        self,
        hidden_states,
        attention_mask,
        position_bias=None,
        encoder_hidden_states=None,
        encoder_attention_mask=None,
        encoder_decoder_position_bias=None,
    ):
        position_bias, attention_output = self.layer[0](
            hidden_states, attention_mask, position_bias=position_bias
        )
        if not self.is_decoder:
            hidden_states = self.layer[1](attention_output)
            return position_bias, hidden_states
        encoder_decoder_position_bias, layer_output = self.layer[1](
            attention_output,
            encoder_hidden_states,
            encoder_attention_mask,
            position_bias=encoder_decoder_position_bias,
        )
        hidden_states = self.layer[2](layer_output)
        return position_bias, encoder_decoder_position_bias, hidden_states


class T5Stack(nnx.Module):
    def __init__(self, config: T5Config, is_decoder, *, rngs: nnx.Rngs):
        self.is_decoder = is_decoder
        self.dropout = nnx.Dropout(config.dropout_rate, rngs=rngs)
        self.block = nnx.List(
            [
                T5Block(
                    config, is_decoder=is_decoder, has_relative_attention_bias=i == 0, rngs=rngs
                )
                for i in range(config.num_layers)
            ]
        )
        self.final_layer_norm = T5LayerNorm(config.d_model, config.layer_norm_epsilon, rngs=rngs)

    def __call__(
        self,
        input_ids,
        weight,
        attention_mask=None,
        encoder_hidden_states=None,
        encoder_attention_mask=None,
    ):
        batch, length = input_ids.shape
        inputs_embeds = weight[input_ids]
        if self.is_decoder:
            attention_mask = jnp.broadcast_to(
                jnp.arange(length)[None, None, None] <= jnp.arange(length)[None, None, :, None],
                (batch, 1, length, length),
            )
            encoder_extended_attention_mask = encoder_attention_mask.astype(jnp.bool_)[
                :batch, None, None
            ]
        else:
            attention_mask = attention_mask.astype(jnp.bool_)[:batch, None, None]
        hidden_states = self.dropout(inputs_embeds)
        if self.is_decoder:
            position_bias, encoder_decoder_position_bias, hidden_states = self.block[0](
                hidden_states,
                attention_mask,
                encoder_hidden_states=encoder_hidden_states,
                encoder_attention_mask=encoder_extended_attention_mask,
            )
            for layer_module in self.block[1:]:
                _, _, hidden_states = layer_module(
                    hidden_states,
                    attention_mask,
                    position_bias=position_bias,
                    encoder_hidden_states=encoder_hidden_states,
                    encoder_attention_mask=encoder_extended_attention_mask,
                    encoder_decoder_position_bias=encoder_decoder_position_bias,
                )
        else:
            position_bias, hidden_states = self.block[0](hidden_states, attention_mask)
            for layer_module in self.block[1:]:
                _, hidden_states = layer_module(
                    hidden_states, attention_mask, position_bias=position_bias
                )
        hidden_states = self.final_layer_norm(hidden_states)
        return self.dropout(hidden_states)


class T5ForConditionalGeneration(nnx.Module):
    def __init__(self, config: T5Config = T5Config(), *, rngs: nnx.Rngs):
        self.model_dim = config.d_model
        self.shared = nnx.Dict(weight=nnx.Param(rngs.params.normal((96, 48)) * 0.02))
        self.encoder = T5Stack(config, is_decoder=False, rngs=rngs)
        self.decoder = T5Stack(config, is_decoder=True, rngs=rngs)

    def __call__(self, input_ids, attention_mask, decoder_input_ids):
        """input_ids: int32 (batch, length)
        attention_mask: int32 (batch, length)
        decoder_input_ids: int32 (batch, length_2)
        """
        encoder_outputs = self.encoder(
            input_ids, self.shared.weight[...], attention_mask=attention_mask
        )
        decoder_outputs = self.decoder(
            decoder_input_ids,
            self.shared.weight[...],
            encoder_hidden_states=encoder_outputs,
            encoder_attention_mask=attention_mask,
        )
        sequence_output = decoder_outputs * self.model_dim ** (-0.5)
        lm_logits = sequence_output @ self.shared.weight[...].T
        return {"logits": lm_logits, "encoder_last_hidden_state": encoder_outputs}


# Weights of PyTorch's that nothing here reads; * stands for a number.
UNREAD = {"decoder.embed_tokens.weight", "encoder.embed_tokens.weight", "lm_head.weight"}


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
    model = load_params(T5ForConditionalGeneration(rngs=nnx.Rngs(0)), weights)
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
