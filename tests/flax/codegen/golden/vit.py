"""ViTForImageClassification in Flax's nnx, written by anyjax from its PyTorch module."""

import dataclasses
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
from flax import nnx


@dataclasses.dataclass(frozen=True)
class ViTConfig:
    num_channels: int = 3
    hidden_size: int = 48
    hidden_dropout_prob: float = 0.0
    num_attention_heads: int = 4
    intermediate_size: int = 80
    layer_norm_eps: float = 1e-12
    num_hidden_layers: int = 3
    num_labels: int = 10


class ViTPatchEmbeddings(nnx.Module):
    def __init__(self, config: ViTConfig, *, rngs: nnx.Rngs):
        self.projection = nnx.Conv(
            config.num_channels,
            config.hidden_size,
            kernel_size=(8, 8),
            strides=8,
            padding="VALID",
            rngs=rngs,
        )

    def __call__(self, pixel_values):
        batch = pixel_values.shape[0]
        return self.projection(pixel_values).reshape(batch, -1, 48)


class ViTAttention(nnx.Module):
    def __init__(self, config: ViTConfig, *, rngs: nnx.Rngs):
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.q_proj = nnx.Linear(
            config.hidden_size, config.num_attention_heads * self.head_dim, rngs=rngs
        )
        self.k_proj = nnx.Linear(
            config.hidden_size, config.num_attention_heads * self.head_dim, rngs=rngs
        )
        self.v_proj = nnx.Linear(
            config.hidden_size, config.num_attention_heads * self.head_dim, rngs=rngs
        )
        self.o_proj = nnx.Linear(
            config.num_attention_heads * self.head_dim, config.hidden_size, rngs=rngs
        )

    def __call__(self, hidden_states):
        batch, length = hidden_states.shape[:2]
        query_states = self.q_proj(hidden_states).reshape(batch, length, -1, self.head_dim)
        key_states = self.k_proj(hidden_states).reshape(batch, length, -1, self.head_dim)
        value_states = self.v_proj(hidden_states).reshape(batch, length, -1, self.head_dim)
        attn_output = jax.nn.dot_product_attention(query_states, key_states, value_states)
        attn_output = attn_output.reshape(batch, length, -1)
        return self.o_proj(attn_output)


class ViTMLP(nnx.Module):
    def __init__(self, config: ViTConfig, *, rngs: nnx.Rngs):
        self.fc1 = nnx.Linear(config.hidden_size, config.intermediate_size, rngs=rngs)
        self.fc2 = nnx.Linear(config.intermediate_size, config.hidden_size, rngs=rngs)

    def __call__(self, hidden_states):
        hidden_states = self.fc1(hidden_states)
        hidden_states = nnx.gelu(hidden_states, approximate=False)
        return self.fc2(hidden_states)


class ViTEmbeddings(nnx.Module):
    def __init__(self, config: ViTConfig, *, rngs: nnx.Rngs):
        self.patch_embeddings = ViTPatchEmbeddings(config, rngs=rngs)
        self.cls_token = nnx.Param(rngs.params.normal((1, 1, config.hidden_size)) * 0.02)
        self.position_embeddings = nnx.Param(rngs.params.normal((1, 17, config.hidden_size)) * 0.02)
        self.dropout = nnx.Dropout(config.hidden_dropout_prob, rngs=rngs)

    def __call__(self, pixel_values):
        batch_size = pixel_values.shape[0]
        embeddings = self.patch_embeddings(pixel_values)
        cls_tokens = jnp.broadcast_to(self.cls_token[...], (batch_size, 1, 48))
        embeddings = jnp.concatenate([cls_tokens, embeddings], axis=1)
        embeddings = embeddings + self.position_embeddings[...]
        return self.dropout(embeddings)


class ViTLayer(nnx.Module):
    def __init__(self, config: ViTConfig, *, rngs: nnx.Rngs):
        self.layernorm_before = nnx.LayerNorm(
            config.hidden_size, epsilon=config.layer_norm_eps, rngs=rngs
        )
        self.attention = ViTAttention(config, rngs=rngs)
        self.dropout = nnx.Dropout(config.hidden_dropout_prob, rngs=rngs)
        self.layernorm_after = nnx.LayerNorm(
            config.hidden_size, epsilon=config.layer_norm_eps, rngs=rngs
        )
        self.mlp = ViTMLP(config, rngs=rngs)

    def __call__(self, hidden_states):
        residual = hidden_states
        hidden_states = self.layernorm_before(hidden_states)
        hidden_states = self.attention(hidden_states)
        hidden_states = self.dropout(hidden_states)
        hidden_states = hidden_states + residual
        residual = hidden_states
        hidden_states = self.layernorm_after(hidden_states)
        hidden_states = self.mlp(hidden_states)
        hidden_states = self.dropout(hidden_states)
        return hidden_states + residual


class ViTModel(nnx.Module):
    def __init__(self, config: ViTConfig, *, rngs: nnx.Rngs):
        self.embeddings = ViTEmbeddings(config, rngs=rngs)
        self.layers = nnx.List(
            [ViTLayer(config, rngs=rngs) for _ in range(config.num_hidden_layers)]
        )
        self.layernorm = nnx.LayerNorm(config.hidden_size, epsilon=config.layer_norm_eps, rngs=rngs)

    def __call__(self, pixel_values):
        embedding_output = self.embeddings(pixel_values)
        hidden_states = embedding_output
        for layer in self.layers:
            hidden_states = layer(hidden_states)
        return self.layernorm(hidden_states)


class ViTForImageClassification(nnx.Module):
    def __init__(self, config: ViTConfig = ViTConfig(), *, rngs: nnx.Rngs):
        self.vit = ViTModel(config, rngs=rngs)
        self.classifier = nnx.Linear(config.hidden_size, config.num_labels, rngs=rngs)

    def __call__(self, pixel_values):
        """pixel_values: float32 (batch, channels, height, width)"""
        if not (
            pixel_values.shape[1] == 3
            and pixel_values.shape[2] == 32
            and (pixel_values.shape[3] == 32)
        ):
            raise ValueError(
                "written for other sizes, which decide at modeling_vit.py:64 and elsewhere"
            )
        pixel_values = pixel_values.transpose(0, 2, 3, 1)
        outputs = self.vit(pixel_values)
        pooled_output = outputs[:, 0]
        return self.classifier(pooled_output)


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
    model = load_params(ViTForImageClassification(rngs=nnx.Rngs(0)), weights)
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
