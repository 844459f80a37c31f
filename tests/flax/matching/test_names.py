from types import SimpleNamespace
from typing import NamedTuple

import pytest

from anyjax.flax.matching.names import RULES, names, names_of_both, word_and_number


def named(*paths):
    layers = [SimpleNamespace(parts=tuple(p.replace("/", ".").split("."))) for p in paths]
    found = names_of(layers)
    return [found[id(x)] for x in layers]


def names_of(layers):
    wrapped = {Key(x): x for x in layers}
    return {id(k.layer): v for k, v in names(list(wrapped), lambda _: "").items()}


class Key:
    def __init__(self, layer):
        self.layer, self.parts = layer, layer.parts


def test_numbers_count_among_siblings():
    a = named("net.0", "net.2", "net.5")
    b = named("Dense_0", "Dense_1", "Dense_2")
    unwrapped = RULES[3][1]
    assert [unwrapped(x) for x in a] == [unwrapped(x) for x in b]
    assert named("only.Dense_0")[0].ranks == ()


@pytest.mark.parametrize(
    ("flax", "torch"),
    [
        ("blocks_1/attn/wq", "model.layers.1.self_attn.q_proj"),
        ("EncoderBlock_1/MultiHeadDotProductAttention_0/key", "encoder.layers.1.self_attn.k_proj"),
        ("layers/1/input_layernorm", "model.layers.1.attention_norm"),
        ("h/1/ln_2", "model.layers.1.post_attention_layernorm"),
        ("tok_embed", "model.embed_tokens"),
        ("conv1", "features.conv1"),
    ],
)
def test_what_a_person_takes_for_one(flax, torch):
    others = "0", "1"
    first = [named(*[p.replace("1", n, 1) for n in others])[1] for p in (flax, torch)]
    assert any(key(first[0]) == key(first[1]) not in (None, ()) for _, key in RULES[:6])


def test_cross_and_self_attention_are_two():
    assert word_and_number("cross_attn")[0] != word_and_number("self_attn")[0]


class Layer(NamedTuple):
    path: str

    @property
    def parts(self):
        return tuple(self.path.split("."))


def pairs(ours: str, theirs: str) -> dict[str, list[str]]:
    """Their layers of equal names by the two strictest rules, for each of ours."""
    mine, others = names_of_both(*([Layer(x) for x in y.split()] for y in (ours, theirs)), bool)
    same = lambda a, b: any(rule(mine[a]) == rule(others[b]) for _, rule in RULES[:3])
    return {a.path: [b.path for b in others if same(a, b)] for a in mine}


def test_numbers_without_a_word_mean_the_order():
    ours, theirs = "layers.0.fc layers.1.fc layers.2.fc", "layers.0.fc layers.2.fc layers.4.fc"
    assert pairs(ours, theirs) == {
        a: [b] for a, b in zip(ours.split(), theirs.split(), strict=True)
    }


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("Dense_0 Dense_1 Dense_2", "dense_1 dense_2 dense_3"),
        ("fc0 fc1 fc2", "fc1 fc2 fc3"),
        ("l_0 l_1 l_2", "l_0 l_1 l_3"),
        ("Block_0.fc Block_1.fc", "block_1.fc block_2.fc"),
        ("Dense_0 Dense_1 Dense_2 Dense_3", "first dense_1 dense_2"),
    ],
)
def test_words_that_are_counted_from_elsewhere_tell_nothing(ours, theirs):
    assert not any(pairs(ours, theirs).values())


def test_numbers_that_one_side_lacks():
    assert pairs("fc1 fc2", "fc1 fc2 fc3") == {"fc1": ["fc1"], "fc2": ["fc2"]}
