"""Twelve modules of all kinds, small enough that a comparison takes a second."""

from __future__ import annotations

import numpy as np
import torch
import transformers
from torch import nn
from torch.nn import functional

from tests.models.tiny import DECODER, GPT2, TEXT, VISION

draw = np.random.default_rng(0).standard_normal
X = draw((6, 8)).astype(np.float32)
SEQUENCE = draw((3, 5, 8)).astype(np.float32)
IMAGES = draw((3, 3, 8, 8)).astype(np.float32)
IDS = np.random.default_rng(0).integers(3, 90, (2, 7))
MASK = np.where(np.arange(7) < [[0], [2]], 0, 1)
LEAST = torch.finfo(torch.float32).min


class Residual(nn.Module):
    """Layers whose activation leaves its input as it is, which is read again."""

    def __init__(self):
        super().__init__()
        self.first, self.activation = nn.Linear(8, 8), nn.ReLU()
        self.norm, self.gelu, self.last = nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4)

    def forward(self, x):
        y = self.first(x)
        return self.last(self.gelu(self.norm(self.activation(y) + 3 * y)))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Flatten(),
        nn.Linear(128, 4),
    )  # fmt: skip


class Recurrent(nn.Module):
    """Tokens through an LSTM; states are outputs, too."""

    def __init__(self):
        super().__init__()
        self.tokens, self.rnn = nn.Embedding(96, 8), nn.LSTM(8, 8, 2, batch_first=True)
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(8, 8)

    def forward(self, ids):
        hidden, (h, c) = self.rnn(self.tokens(ids))
        return self.last(self.drop(hidden)), h, c


class Rotary(nn.Module):
    """The angles of positions."""

    def __init__(self, base=100.0):
        super().__init__()
        self.base = base

    def forward(self, x):
        half = x.shape[-1] // 2
        angles = torch.arange(x.shape[-2])[:, None] * self.base ** (-torch.arange(half) / half)
        a, b = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    """Attention with positions, whose hidden scores are the least floats; scores are outputs."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.rotary, self.norm, self.last = Rotary(), nn.LayerNorm(8), nn.Linear(8, 8)
        self.scale = 0.35

    def forward(self, x):
        q, k, v = (self.rotary(self.query(x)), self.rotary(self.key(x)), self.value(x))
        scores = q @ k.mT * self.scale
        hidden = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        scores = scores.masked_fill(hidden, LEAST)
        return self.last(self.norm(x + scores.softmax(-1) @ v)), scores


class Several(nn.Module):
    """Outputs of all dtypes, the small ones beside large ones."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        y = self.body(x).tanh()
        logits = self.head(y)
        return {
            "large": y * 1e9,
            "logits": logits,
            "small": y * 1e-4,
            "best": logits.argmax(-1),
            "positive": logits > 0,
            "waves": torch.complex(y, y.flip(0)),
            "half": y.bfloat16(),
        }


class Written(nn.Module):
    """Buffers that a call writes, none of which the output tells."""

    def __init__(self):
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(8), nn.Linear(8, 8)
        self.register_buffer("average", torch.zeros(8))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.rate = 0.1

    def forward(self, x):
        y = self.norm(x)
        self.average.lerp_(y.mean(0), self.rate)
        self.count += 1
        return self.last(y)


class Pointed(nn.Module):
    """Indices, gathers and sorted values."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        values, places = functional.softmax(self.first(x), -1).topk(3)
        return self.second(x).gather(-1, places) * values, places


def hugging(kind, config, **options):
    return lambda: kind._from_config(config(**options), attn_implementation="eager")


SMALL = {"num_hidden_layers": 1, "num_attention_heads": 2}
TOKENS = {"input_ids": IDS, "attention_mask": MASK, "use_cache": False}
# Of each name: what builds the module, its arguments, its mode.
MODULES = {
    "residual": (Residual, (X,), {}),
    "convolutions": (convolutions, (IMAGES,), {}),
    "recurrent": (Recurrent, (IDS,), {}),
    "attention": (Attention, (SEQUENCE,), {}),
    "several": (Several, (X,), {}),
    "written": (Written, (X,), {}),
    "pointed": (Pointed, (X,), {}),
    "llama": (
        hugging(transformers.LlamaForCausalLM, transformers.LlamaConfig, **DECODER | SMALL
                | {"num_key_value_heads": 1}), (), TOKENS,
    ),
    "gpt2": (
        hugging(transformers.GPT2LMHeadModel, transformers.GPT2Config, **GPT2 | {"n_layer": 1}),
        (), TOKENS,
    ),
    "bert": (
        hugging(transformers.BertForMaskedLM, transformers.BertConfig, **TEXT | SMALL), (),
        {"input_ids": IDS, "attention_mask": MASK},
    ),
    "t5": (
        hugging(transformers.T5ForConditionalGeneration, transformers.T5Config, d_model=16, d_kv=8,
                d_ff=32, num_layers=1, num_heads=2, vocab_size=96), (),
        {"input_ids": IDS, "decoder_input_ids": IDS[:, :5], "use_cache": False},
    ),
    "vit": (
        hugging(transformers.ViTModel, transformers.ViTConfig, **VISION | SMALL
                | {"image_size": 16}),
        (), {"pixel_values": draw((2, 3, 16, 16)).astype(np.float32)},
    ),
}  # fmt: skip
TRAINING = {"written"}


def module(name):
    """Returns a module whose biases and norms have values that tell them apart."""
    build, args, kwargs = MODULES[name]
    torch.manual_seed(0)
    built = build()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
        for key, buffer in built.named_buffers():
            if "running" in key:
                buffer += torch.rand(buffer.shape, generator=generator)
    return built.train(name in TRAINING), args, kwargs
