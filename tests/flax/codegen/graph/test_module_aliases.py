"""Modules of several names, and parts of their results that are written to."""

import torch
from torch import nn

from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import assert_same_gradients, assert_same_values, prepared


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x).relu() if i < 1 else layer(x)
        return x


class Shared(nn.Module):
    """Each level has the same two heads."""

    def __init__(self):
        super().__init__()
        head = Head()
        self.boxes = nn.ModuleList([head, head])
        self.kinds = nn.ModuleList([nn.Linear(4, 3)] * 2)

    def forward(self, x, reference):
        results = []
        for level in range(2):
            kinds, boxes = self.kinds[level](x[:, level]), self.boxes[level](x[:, level])
            boxes[..., :2] += reference[:, level]
            results += [kinds, boxes.sigmoid()]
        return tuple(results)


def test_a_module_is_called_by_its_first_name():
    torch.manual_seed(0)
    module, inputs = Shared().eval(), (drawn(3, 2, 4), drawn(3, 2, 2))
    text, model = prepared(module, inputs)
    assert "self.boxes[0](x[:, 1])" in text and "self.kinds[0](x[:, 1])" in text
    assert "None" not in text.partition("def load_params")[0].partition("class Shared")[2]
    assert_same_values(module, model, inputs)
    assert_same_gradients(module, model, inputs)


class Inner(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4) * 2)
        self.heads = heads

    def forward(self, x):
        return self.heads[1](x * self.scale)


class Outer(nn.Module):
    """The same heads inside of a submodule and outside."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([Head()] * 2)
        self.inner = Inner(self.heads)

    def forward(self, x):
        return self.heads[0](x), self.inner(x)


def test_names_that_the_caller_reaches():
    torch.manual_seed(0)
    module, inputs = Outer().eval(), (drawn(3, 4),)
    text, model = prepared(module, inputs)
    assert "self.inner.heads[0](x)" in text
    assert_same_values(module, model, inputs)
