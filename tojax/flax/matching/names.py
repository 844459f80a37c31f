"""Names of layers in one spelling: what a person means by ``blocks_3/attn/wq`` and by
``model.layers.3.self_attn.q_proj``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

_WORDS = {
    "query": "q q_proj wq w_q to_q query_proj q_lin q_linear query_layer",
    "key": "k k_proj wk w_k to_k key_proj k_lin k_linear key_layer",
    "value": "v v_proj wv w_v to_v value_proj v_lin v_linear value_layer",
    "out": "o o_proj wo w_o to_out out_proj o_lin out_lin output_proj",
    "qkv": "in_proj c_attn qkv_proj to_qkv wqkv",
    "embed": "embed_tokens tok_embeddings tok_embed token_embed token_embedding token_embeddings "
    "tok_emb word_embeddings word_embedding wte embedder embeddings embedding emb",
    "position": "wpe pos_embed pos_emb pos_embedding pos_embeddings position_embedding "
    "position_embeddings position_embed positional_embedding positions",
    "cls": "cls_token class_token cls_embedding class_embedding",
    "layers": "layer blocks block h transformer_block encoder_layer decoder_layer "
    "encoder_block decoder_block encoder_layers decoder_layers stages stage",
    "attn": "attention self_attn self_attention mha multi_head_attention "
    "multi_head_dot_product_attention",
    "cross": "cross_attn cross_attention crossattention encoder_attn multihead_attn "
    "enc_dec_attention encoder_decoder_attention",
    "mlp": "ffn feed_forward ff mlp_block feedforward",
    "gate": "gate_proj w_gate",
    "up": "up_proj w_up c_fc",
    "down": "down_proj w_down",
    "norm1": "input_layernorm attention_norm attn_norm pre_attn_norm self_attn_layer_norm "
    "pre_attention_norm ln_attn norm_attn layernorm_before norm_before",
    "norm2": "post_attention_layernorm ffn_norm mlp_norm pre_mlp_norm final_layer_norm "
    "pre_ffn_norm ln_mlp norm_mlp ln_ffn norm_ffn post_attention_norm layernorm_after norm_after",
    "norm": "ln_f final_norm norm_f final_layernorm ln_final norm_final final_ln ln_out",
    "head": "lm_head classifier output_layer head_layer",
    "downsample": "shortcut downsample_conv skip proj_conv",
    "forward": "forward_rnn",
    "backward": "backward_rnn reverse",
}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MEANING = {spelling: word for word, all_ in _WORDS.items() for spelling in all_.split()}
# A layer that is only called by what it is has no name but its number.
_PLAIN = _words(
    "dense linear lin fc layer layers conv conv2d conv1d conv_layer norm ln bn layer_norm "
    "layernorm batch_norm batchnorm group_norm groupnorm rms_norm rmsnorm gn lstm gru rnn cell "
    "conv_transpose linear_layer lstm_cell gru_cell optimized_lstmcell lstmcell grucell"
)
# Wrappers that one side has and the other does not.
_WRAPPERS = _words(
    "model module transformer net network backbone base_model encoder decoder features body main "
    "trunk seq sequential bert roberta vit gpt llama self cell params attn mlp"
)


class Part(NamedTuple):
    """One step of a path: a word, and its rank among its numbered siblings."""

    word: str
    rank: int | None


class Name(NamedTuple):
    """A path in the common spelling; ``raw`` as it was, in lower case with underscores."""

    raw: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(p.rank for p in self.parts if p.rank is not None)

    @property
    def blocks(self) -> tuple[int, ...]:
        """The ranks of what the layer is in, without its own."""
        return tuple(p.rank for p in self.parts[:-1] if p.rank is not None)

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(p.word for p in self.parts if p.word)

    @property
    def leaf(self) -> str:
        return self.parts[-1].word if self.parts else ""


def snake(text: str) -> str:
    """Lower case with underscores.

    Example:
      >>> snake("TransformerBlock_0"), snake("selfAttn"), snake("LayerNorm")
      ('transformer_block_0', 'self_attn', 'layer_norm')
    """
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text)
    return text.replace("-", "_").lower().strip("_")


def split(part: str) -> tuple[str, int | None]:
    """The word that a step of a path means, and its number.

    Example:
      >>> split("q_proj"), split("Dense_2"), split("ln_1"), split("7")
      (('query', None), ('', 2), ('norm', 1), ('', 7))
    """
    text = snake(part)
    text = _MEANING.get(text, text)
    match = re.fullmatch(r"(.*?)_?(\d+)", text)
    stem, number = (match[1], int(match[2])) if match else (text, None)
    stem = _MEANING.get(stem, stem)
    if stem in ("norm", "ln", "layer_norm", "layernorm", "rms_norm", "rmsnorm"):
        return "norm", number
    if number is not None and stem.endswith(("_block", "_layer")):
        return "layers", number
    return ("" if stem in _PLAIN and number is not None and stem != "layers" else stem), number


def names(layers: Sequence[Any], sort: Callable[[Any], Hashable]) -> dict[Any, Name]:
    """The name of each layer (which has ``parts``); numbers count within siblings of one sort."""
    seen: dict[Hashable, set[int]] = {}
    for layer in layers:
        for place, number in _numbered(layer, sort):
            seen.setdefault(place, set()).add(number)
    order = {place: sorted(numbers) for place, numbers in seen.items()}
    found = {}
    for layer in layers:
        ranks = {  # a number without siblings says nothing
            place: order[place].index(number) if len(order[place]) > 1 else None
            for place, number in _numbered(layer, sort)
        }
        raw = tuple(map(snake, layer.parts))
        found[layer] = Name(raw, _joined([_part(layer, i, ranks, sort) for i in range(len(raw))]))
    return found


def _place(layer: Any, i: int, sort: Callable) -> tuple[Hashable, int | None]:
    parts = layer.parts
    word, number = split(parts[i])
    return (parts[:i], word, sort(layer) if i == len(parts) - 1 else None), number


def _numbered(layer: Any, sort: Callable) -> Iterable[tuple[Hashable, int]]:
    for i in range(len(layer.parts)):
        place, number = _place(layer, i, sort)
        if number is not None:
            yield place, number


def _part(layer: Any, i: int, ranks: dict, sort: Callable) -> Part:
    place, number = _place(layer, i, sort)
    return Part(split(layer.parts[i])[0], None if number is None else ranks[place])


def _joined(parts: list[Part]) -> tuple[Part, ...]:
    """``layers``, ``3`` is one step, as ``layers_3`` is."""
    done: list[Part] = []
    for i, part in enumerate(parts):
        if part == ("", None) and i < len(parts) - 1:
            continue
        if part.word == "" and part.rank is not None and done and done[-1].rank is None:
            done[-1] = Part(done[-1].word, part.rank)
        else:
            done.append(part)
    return tuple(done)


def _unwrapped(name: Name) -> Hashable:
    """The path without wrappers, and without the word of a list of wrappers."""
    kept = [p for p in name.parts if p.word not in _WRAPPERS or p.rank is not None]
    return tuple(Part("" if p.word in _WRAPPERS else p.word, p.rank) for p in kept)


# From the strictest to the loosest; with each, how it is reported. A pair is taken where it is the
# only one of its key, on both sides, among those that fit by shape.
RULES: tuple[tuple[str, Callable[[Name], Hashable]], ...] = (
    ("name", lambda n: n.raw),
    ("name", lambda n: (n.raw[:-1], n.parts[-1:])),
    ("name", lambda n: n.parts),
    ("name", lambda n: (_unwrapped(n),)),
    ("name", lambda n: (n.ranks, n.words[-2:]) if n.leaf and len(n.words) > 1 else None),
    ("name", lambda n: (n.ranks, n.leaf) if n.leaf else None),
    ("shape", lambda n: (n.ranks, n.words[:-1][-1:])),
    ("shape", lambda n: n.ranks),
    ("shape", lambda n: n.blocks),
    ("shape", lambda n: ()),
)
