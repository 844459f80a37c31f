"""Names of layers in a common spelling, in which ``blocks_3/attn/wq`` and
``model.layers.3.self_attn.q_proj`` are equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

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
# Layers that are named after their class: only the number counts.
_CLASS_WORDS = _words(
    "dense linear lin fc layer layers conv conv2d conv1d conv_layer norm ln bn layer_norm "
    "layernorm batch_norm batchnorm group_norm groupnorm rms_norm rmsnorm gn lstm gru rnn cell "
    "conv_transpose linear_layer lstm_cell gru_cell optimized_lstmcell lstmcell grucell"
)
# Wrappers that only one side may have.
_WRAPPERS = _words(
    "model module transformer net network backbone base_model encoder decoder features body main "
    "trunk seq sequential bert roberta vit gpt llama self cell params attn mlp"
)


class HasParts(Protocol):
    """A layer of either side."""

    @property
    def parts(self) -> tuple[str, ...]: ...


L = TypeVar("L", bound=HasParts)
K = TypeVar("K", bound=HasParts)


_Siblings = tuple[tuple[str, ...], str, Hashable]
_Numbers = dict[_Siblings, set[int]]


class Step(NamedTuple):
    """One step of a path: a word, and its rank among its numbered siblings."""

    word: str
    rank: int | None


class Name(NamedTuple):
    """A path in the common spelling; ``raw`` is the original in lower case with underscores, and
    ``exact`` that with ranks in place of numbers that the two sides count otherwise.
    """

    raw: tuple[str, ...]
    steps: tuple[Step, ...]
    exact: tuple[str, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(s.rank for s in self.steps if s.rank is not None)

    @property
    def blocks(self) -> tuple[int, ...]:
        """The ranks of the blocks around the layer, without its own rank."""
        return tuple(s.rank for s in self.steps[:-1] if s.rank is not None)

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(s.word for s in self.steps if s.word)

    @property
    def leaf(self) -> str:
        return self.steps[-1].word if self.steps else ""


def snake(text: str) -> str:
    """Converts to lower case with underscores.

    Example:
      >>> snake("TransformerBlock_0"), snake("selfAttn"), snake("LayerNorm")
      ('transformer_block_0', 'self_attn', 'layer_norm')
    """
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text)
    return text.replace("-", "_").lower().strip("_")


def word_and_number(step: str) -> tuple[str, int | None]:
    """Returns the common word for a step of a path, and its number.

    Example:
      >>> [word_and_number(step) for step in ("q_proj", "Dense_2", "ln_1", "7")]
      [('query', None), ('', 2), ('norm', 1), ('', 7)]
    """
    text = snake(step)
    text = _MEANING.get(text, text)
    match = re.fullmatch(r"(.*?)_?(\d+)", text)
    stem, number = (match[1], int(match[2])) if match else (text, None)
    stem = _MEANING.get(stem, stem)
    if stem in ("norm", "ln", "layer_norm", "layernorm", "rms_norm", "rmsnorm"):
        return "norm", number
    if number is not None and stem.endswith(("_block", "_layer")):
        return "layers", number
    is_counted = stem in _CLASS_WORDS and number is not None and stem != "layers"
    return "" if is_counted else stem, number


def names(layers: Sequence[L], group: Callable[[L], Hashable]) -> dict[L, Name]:
    """Returns the name of each layer; numbers are ranked among siblings of the same group."""
    numbers: dict[Hashable, set[int]] = {}
    for layer in layers:
        for siblings, number in _numbered(layer, group):
            numbers.setdefault(siblings, set()).add(number)
    order = {siblings: sorted(of_siblings) for siblings, of_siblings in numbers.items()}
    named = {}
    for layer in layers:
        ranks = {  # a number without siblings means nothing
            siblings: order[siblings].index(number) if len(order[siblings]) > 1 else None
            for siblings, number in _numbered(layer, group)
        }
        raw = tuple(map(snake, layer.parts))
        named[layer] = Name(
            raw, _merged([_step(layer, i, ranks, group) for i in range(len(raw))]), raw
        )
    return named


def names_of_both(
    ours: Sequence[L], theirs: Sequence[K], group: Callable[[L | K], Hashable]
) -> tuple[dict[L, Name], dict[K, Name]]:
    """Returns the names of both sides' layers.

    Where the two count the same siblings from different numbers, such as dense_1 to dense_3 and
    Dense_0 to Dense_2, neither number nor order tells which belongs to which: Linen counts layers
    as they are made, which may be the last one first. Of numbers without a word the order counts.
    """
    numbers = _numbers(ours, group), _numbers(theirs, group)
    ranked = _ranked(names(ours, group), *numbers, -1, group)
    return ranked, _ranked(names(theirs, group), *numbers[::-1], -2, group)


def _ranked(
    named: dict[L, Name], ours: _Numbers, theirs: _Numbers, unknown: int, group: Callable
) -> dict[L, Name]:
    """Returns the names of one side with the ranks, or a rank that no layer of the other has."""
    ranked = {}
    for layer, name in named.items():
        for i, key, number in _stems(layer, group):
            members, counterparts = ours[key], theirs.get(key, set())
            if not counterparts or members == counterparts:
                continue
            stem, is_as_long = key[1], len(members) == len(counterparts)
            if is_as_long and not stem:
                rank = sorted(members).index(number)
            elif is_as_long or (0 in members) != (0 in counterparts):
                rank, (*outer, last) = unknown, name.steps
                is_last = i == len(name.raw) - 1
                steps = (
                    [*outer, Step(last.word, rank)] if is_last else [Step("", rank), *name.steps]
                )
                name = name._replace(steps=tuple(steps))
            else:
                continue
            exact = (*name.exact[:i], f"{stem}#{rank}", *name.exact[i + 1 :])
            name = name._replace(exact=exact)
        ranked[layer] = name
    return ranked


def _stems(layer: HasParts, group: Callable) -> Iterator[tuple[int, _Siblings, int]]:
    """Yields (place, its siblings in either side, its number) of each numbered step."""
    raw = tuple(map(snake, layer.parts))
    for i, text in enumerate(raw):
        if match := re.fullmatch(r"(.*?)_?(\d+)", text):
            yield i, (raw[:i], match[1], group(layer) if i == len(raw) - 1 else None), int(match[2])


def _numbers(layers: Iterable[HasParts], group: Callable) -> _Numbers:
    numbers: _Numbers = {}
    for layer in layers:
        for _, siblings, number in _stems(layer, group):
            numbers.setdefault(siblings, set()).add(number)
    return numbers


def _siblings(layer: HasParts, i: int, group: Callable) -> tuple[Hashable, int | None]:
    """Returns (a key for the siblings of the i-th step, the number of the step)."""
    steps = layer.parts
    word, number = word_and_number(steps[i])
    return (steps[:i], word, group(layer) if i == len(steps) - 1 else None), number


def _numbered(layer: HasParts, group: Callable) -> Iterable[tuple[Hashable, int]]:
    for i in range(len(layer.parts)):
        siblings, number = _siblings(layer, i, group)
        if number is not None:
            yield siblings, number


def _step(layer: HasParts, i: int, ranks: dict[Hashable, int | None], group: Callable) -> Step:
    siblings, number = _siblings(layer, i, group)
    return Step(word_and_number(layer.parts[i])[0], None if number is None else ranks[siblings])


def _merged(steps: list[Step]) -> tuple[Step, ...]:
    """Merges a step and the number after it: ``layers``, ``3`` becomes one, as ``layers_3`` is."""
    merged: list[Step] = []
    for i, step in enumerate(steps):
        if step == ("", None) and i < len(steps) - 1:
            continue
        if step.word == "" and step.rank is not None and merged and merged[-1].rank is None:
            merged[-1] = Step(merged[-1].word, step.rank)
        else:
            merged.append(step)
    return tuple(merged)


def _unwrapped(name: Name) -> Hashable:
    """Returns the path without wrappers; of a numbered wrapper only the rank remains."""
    steps = [s for s in name.steps if s.word not in _WRAPPERS or s.rank is not None]
    return tuple(Step("" if s.word in _WRAPPERS else s.word, s.rank) for s in steps)


# From the strictest to the loosest; with each, how it is reported. A pair is taken if it is the
# only one with its key, on both sides, among layers that fit by shape.
RULES: tuple[tuple[str, Callable[[Name], Hashable]], ...] = (
    ("name", lambda n: n.exact),
    ("name", lambda n: (n.exact[:-1], n.steps[-1:])),
    ("name", lambda n: n.steps),
    ("name", lambda n: (_unwrapped(n),)),
    ("name", lambda n: (n.ranks, n.words[-2:]) if n.leaf and len(n.words) > 1 else None),
    ("name", lambda n: (n.ranks, n.leaf) if n.leaf else None),
    ("shape", lambda n: (n.ranks, n.words[:-1][-1:])),
    ("shape", lambda n: n.ranks),
    ("shape", lambda n: n.blocks),
    ("shape", lambda n: ()),
)
