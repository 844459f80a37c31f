"""Modules of one class that do different things: one class, told apart by flags and arguments."""

import ast

import pytest
import torch
from flax import nnx
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration

import anyjax
from tests.flax.codegen.models import drawn, ids
from tests.flax.codegen.running import (
    assert_same_gradients,
    assert_same_outputs,  # fmt: skip
    assert_same_values,
    loaded,
    prepared,
)

pytestmark = pytest.mark.sample(every=15)


class Block(nn.Module):
    """A flag, a part that only some have, an argument that only some are given."""

    def __init__(self, width, gated, wide):
        super().__init__()
        self.gated = gated
        self.up = nn.Linear(width, 3 * width) if wide else None
        self.down = nn.Linear(3 * width if wide else width, width)

    def forward(self, x, bias=None):
        if bias is None:
            bias = x.mean(1, keepdim=True)
        x = x + bias
        if self.up is not None:
            x = self.up(x).relu()
        x = self.down(x)
        x = x * x.sigmoid() if self.gated else x.tanh()
        return x, bias


class Stack(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, i != 1, i < 2) for i in range(4)])

    def forward(self, x):
        bias = None
        for block in self.blocks:
            x, bias = block(x, bias)
        return x


class Mixed(nn.Module):
    """Its parts differ where nothing tells them apart."""

    class Part(nn.Module):
        def __init__(self, function):
            super().__init__()
            self._function = function
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            return self._function(self.layer(x))

    def __init__(self):
        super().__init__()
        self.one, self.other = Mixed.Part(torch.sin), Mixed.Part(torch.cos)

    def forward(self, x):
        return self.other(self.one(x))


def classes_of(text: str) -> list[str]:
    return [x.name for x in ast.parse(text).body if isinstance(x, ast.ClassDef)]


def test_flags_parts_and_arguments():
    torch.manual_seed(0)
    module = Stack().eval()
    text, model = prepared(module, (drawn(2, 5, 6),))
    assert classes_of(text) == ["Block", "Stack"]
    assert "def __call__(self, x, bias=None):" in text
    assert "if bias is None:" in text and "if self.gated:" in text
    assert "if self.up is not None:" in text and "if has_up else None" in text
    assert_same_values(module, model, (drawn(3, 4, 6),))
    assert_same_gradients(module, model, (drawn(3, 4, 6),))


def test_what_nothing_tells_apart_stays_two_classes():
    module = Mixed().eval()
    text, model = prepared(module, (drawn(2, 6),))
    assert classes_of(text) == ["Part", "Part2", "Mixed"]
    assert_same_values(module, model, (drawn(3, 6),))


@pytest.mark.parametrize("layers", [2, 4])
def test_t5_has_a_class_for_each_of_the_author_s_and_serves_other_depths(layers):
    torch.manual_seed(0)
    sizes = dict(d_model=24, d_kv=6, d_ff=20, num_heads=4, vocab_size=50, decoder_start_token_id=0)
    inputs = dict(input_ids=ids(2, 7), attention_mask=torch.ones(2, 7, dtype=torch.int64))
    inputs |= dict(decoder_input_ids=ids(2, 5))
    text = anyjax.flax.source(T5ForConditionalGeneration(T5Config(**sizes, num_layers=3)), **inputs)
    module = T5ForConditionalGeneration(T5Config(**sizes, num_layers=layers)).eval()
    names = {type(x).__name__ for x in module.modules()} & set(classes_of(text))
    assert names >= {"T5Attention", "T5Block", "T5Stack"}
    assert not any(f"{x}2" in classes_of(text) for x in names)
    file = loaded(text.replace("num_layers: int = 3", f"num_layers: int = {layers}"))
    assert_same_outputs(module, file, inputs)


def test_in_linen():
    torch.manual_seed(0)
    module = Stack().eval()
    text = anyjax.flax.source(module, drawn(2, 5, 6), style="linen")
    file = loaded(text)
    weights = {k: v.detach().numpy() for k, v in module.state_dict().items()}
    variables = file.load_params(weights)
    assert classes_of(text) == ["Block", "Stack"]
    x = drawn(3, 4, 6)
    assert_same_values(module, lambda x: file.Stack().apply(variables, x), (x,))


def test_a_model_is_made_without_weights():
    file = loaded(anyjax.flax.source(Stack(), drawn(2, 5, 6)))
    model = file.Stack(rngs=nnx.Rngs(0))
    assert model.blocks[3].up is None and model.blocks[0].up.kernel.shape == (6, 18)
