"""BertForMaskedLM in Flax's nnx, written by anyjax from its PyTorch module."""

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


class PaddedEmbed(nnx.Embed):
    """As PyTorch's: looking the token of padding up gives its row no gradient."""

    def __init__(self, num_embeddings, features, *, padding_idx, rngs):
        super().__init__(num_embeddings, features, rngs=rngs)
        self.padding_idx = padding_idx

    def __call__(self, inputs):
        found = super().__call__(inputs)
        padding = (inputs == self.padding_idx)[..., None]
        return jnp.where(padding, jax.lax.stop_gradient(found), found)


@dataclasses.dataclass(frozen=True)
class BertConfig:
    vocab_size: int = 96
    hidden_size: int = 48
    pad_token_id: int = 0
    type_vocab_size: int = 2
    max_position_embeddings: int = 64
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    num_attention_heads: int = 4
    attention_probs_dropout_prob: float = 0.1
    intermediate_size: int = 80
    num_hidden_layers: int = 3


class BertEmbeddings(nnx.Module):
    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.position_ids = nnx.Variable(jnp.arange(64)[None])
        self.token_type_ids = nnx.Variable(jnp.full((1, 64), 0))
        self.word_embeddings = PaddedEmbed(
            config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id, rngs=rngs
        )
        self.token_type_embeddings = nnx.Embed(
            config.type_vocab_size, config.hidden_size, rngs=rngs
        )
        self.position_embeddings = nnx.Embed(
            config.max_position_embeddings, config.hidden_size, rngs=rngs
        )
        self.LayerNorm = nnx.LayerNorm(config.hidden_size, epsilon=config.layer_norm_eps, rngs=rngs)
        self.dropout = nnx.Dropout(config.hidden_dropout_prob, rngs=rngs)

    def __call__(self, input_ids):
        batch, length = input_ids.shape
        position_ids = self.position_ids[...][:, :length]
        buffered_token_type_ids = jnp.take_along_axis(
            self.token_type_ids[...], position_ids, axis=1
        )
        token_type_ids = jnp.broadcast_to(buffered_token_type_ids, (batch, length))
        inputs_embeds = self.word_embeddings(input_ids)
        token_type_embeddings = self.token_type_embeddings(token_type_ids)
        embeddings = inputs_embeds + token_type_embeddings
        position_embeddings = self.position_embeddings(position_ids)
        embeddings = embeddings + position_embeddings
        embeddings = self.LayerNorm(embeddings)
        return self.dropout(embeddings)


class BertSelfAttention(nnx.Module):
    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.attention_head_size = int(config.hidden_size / config.num_attention_heads)
        self.all_head_size = config.num_attention_heads * self.attention_head_size
        self.query = nnx.Linear(config.hidden_size, self.all_head_size, rngs=rngs)
        self.key = nnx.Linear(config.hidden_size, self.all_head_size, rngs=rngs)
        self.value = nnx.Linear(config.hidden_size, self.all_head_size, rngs=rngs)
        self.dropout = nnx.Dropout(config.attention_probs_dropout_prob, rngs=rngs)

    def __call__(self, hidden_states, attention_mask):
        batch, length = hidden_states.shape[:2]
        query_layer = self.query(hidden_states).reshape(batch, length, -1, self.attention_head_size)
        key_layer = self.key(hidden_states).reshape(batch, length, -1, self.attention_head_size)
        value_layer = self.value(hidden_states).reshape(batch, length, -1, self.attention_head_size)
        attn_output = attention_with_dropout(
            query_layer, key_layer, value_layer, self.dropout, mask=attention_mask
        )
        return attn_output.reshape(batch, length, -1)


class BertSelfOutput(nnx.Module):
    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.dense = nnx.Linear(config.hidden_size, config.hidden_size, rngs=rngs)
        self.dropout = nnx.Dropout(config.hidden_dropout_prob, rngs=rngs)
        self.LayerNorm = nnx.LayerNorm(config.hidden_size, epsilon=config.layer_norm_eps, rngs=rngs)

    def __call__(self, hidden_states, input_tensor):
        hidden_states = self.dense(hidden_states)
        hidden_states = self.dropout(hidden_states)
        return self.LayerNorm(hidden_states + input_tensor)


class BertIntermediate(nnx.Module):
    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.dense = nnx.Linear(config.hidden_size, config.intermediate_size, rngs=rngs)

    def __call__(self, hidden_states):
        hidden_states = self.dense(hidden_states)
        return nnx.gelu(hidden_states, approximate=False)


class BertOutput(nnx.Module):
    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.dense = nnx.Linear(config.intermediate_size, config.hidden_size, rngs=rngs)
        self.dropout = nnx.Dropout(config.hidden_dropout_prob, rngs=rngs)
        self.LayerNorm = nnx.LayerNorm(config.hidden_size, epsilon=config.layer_norm_eps, rngs=rngs)

    def __call__(self, hidden_states, input_tensor):
        hidden_states = self.dense(hidden_states)
        hidden_states = self.dropout(hidden_states)
        return self.LayerNorm(hidden_states + input_tensor)


class BertPredictionHeadTransform(nnx.Module):
    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.dense = nnx.Linear(config.hidden_size, config.hidden_size, rngs=rngs)
        self.LayerNorm = nnx.LayerNorm(config.hidden_size, epsilon=config.layer_norm_eps, rngs=rngs)

    def __call__(self, hidden_states):
        hidden_states = self.dense(hidden_states)
        hidden_states = nnx.gelu(hidden_states, approximate=False)
        return self.LayerNorm(hidden_states)


class Linear(nnx.Module):
    def __init__(self, out_features, *, rngs: nnx.Rngs):
        self.bias = nnx.Param(jnp.zeros((out_features,)))

    def __call__(self, input_, weight):
        return input_ @ weight.T + self.bias[...]


class BertAttention(nnx.Module):
    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.self = BertSelfAttention(config, rngs=rngs)
        self.output = BertSelfOutput(config, rngs=rngs)

    def __call__(self, hidden_states, attention_mask):
        attention_output = self.self(hidden_states, attention_mask)
        return self.output(attention_output, hidden_states)


class BertLMPredictionHead(nnx.Module):
    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.transform = BertPredictionHeadTransform(config, rngs=rngs)
        self.decoder = Linear(config.vocab_size, rngs=rngs)

    def __call__(self, hidden_states, weight):
        hidden_states = self.transform(hidden_states)
        return self.decoder(hidden_states, weight)


class BertLayer(nnx.Module):
    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.attention = BertAttention(config, rngs=rngs)
        self.intermediate = BertIntermediate(config, rngs=rngs)
        self.output = BertOutput(config, rngs=rngs)

    def __call__(self, hidden_states, attention_mask):
        self_attention_output = self.attention(hidden_states, attention_mask)
        return self.output(self.intermediate(self_attention_output), self_attention_output)


class BertOnlyMLMHead(nnx.Module):
    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.predictions = BertLMPredictionHead(config, rngs=rngs)

    def __call__(self, sequence_output, weight):
        return self.predictions(sequence_output, weight)


class BertEncoder(nnx.Module):
    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.layer = nnx.List(
            [BertLayer(config, rngs=rngs) for _ in range(config.num_hidden_layers)]
        )

    def __call__(self, hidden_states, attention_mask):
        for layer_module in self.layer:
            hidden_states = layer_module(hidden_states, attention_mask)
        return hidden_states


class BertModel(nnx.Module):
    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.embeddings = BertEmbeddings(config, rngs=rngs)
        self.encoder = BertEncoder(config, rngs=rngs)

    def __call__(self, input_ids, attention_mask):
        batch = input_ids.shape[0]
        embedding_output = self.embeddings(input_ids)
        attention_mask = attention_mask.astype(jnp.bool_)[:batch, None, None]
        return self.encoder(embedding_output, attention_mask)


class BertForMaskedLM(nnx.Module):
    def __init__(self, config: BertConfig = BertConfig(), *, rngs: nnx.Rngs):
        self.bert = BertModel(config, rngs=rngs)
        self.cls = BertOnlyMLMHead(config, rngs=rngs)

    def __call__(self, input_ids, attention_mask):
        """input_ids: int32 (batch, length)
        attention_mask: int32 (batch, length)
        """
        outputs = self.bert(input_ids, attention_mask)
        return self.cls(outputs, self.bert.embeddings.word_embeddings.embedding[...])


# Weights of PyTorch's that nothing here reads; * stands for a number.
UNREAD = {"cls.predictions.bias", "cls.predictions.decoder.weight"}


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
    model = load_params(BertForMaskedLM(rngs=nnx.Rngs(0)), weights)
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
