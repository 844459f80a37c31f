"""Models for the tests of ``anyjax.explore``."""

from __future__ import annotations

import numpy as np
import torch

import anyjax

HOSTILE = "</script><img src=x onerror=alert(1)>"
ROWS, LENGTH, WIDTH, HEADS = 2, 5, 8, 2
X = np.random.default_rng(0).standard_normal((ROWS, LENGTH, WIDTH)).astype(np.float32)


class Attention(torch.nn.Module):
    """Attention as a formula counts it: four projections and two products of each head."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (
            torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)
        )

    def forward(self, x):
        split = lambda y: y.reshape(*y.shape[:-1], HEADS, -1).transpose(1, 2)
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        mixed = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Block(torch.nn.Module):
    """An attention, a layer that is not called, and an operation of its own."""

    def __init__(self):
        super().__init__()
        self.attention, self.up, self.idle = (
            Attention(),
            torch.nn.Linear(WIDTH, 4 * WIDTH),
            torch.nn.Linear(3, 3),
        )
        self.register_buffer("scale", torch.tensor([1.0, float("nan"), float("inf"), 0.0]))

    def forward(self, x):
        return self.up(x + self.attention(x)) * 2.0 + self.scale[0]


def model():
    torch.manual_seed(0)
    blocks = [Block(), torch.nn.Linear(4 * WIDTH, WIDTH), Block()]
    return anyjax.from_torch(torch.nn.Sequential(*blocks).eval())


def hostile():
    """A model whose params and modules have names that are markup."""
    module = torch.nn.Module()
    module.forward = lambda x: module._modules[HOSTILE.replace(".", "")](x)
    module.add_module(HOSTILE.replace(".", ""), torch.nn.Linear(3, 2))
    return anyjax.from_torch(module.eval())
