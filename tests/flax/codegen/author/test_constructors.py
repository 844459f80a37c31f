"""The author's constructor arguments, however the constructor is written."""

import functools

import pytest
import torch
from torch import nn

import anyjax
from tests.flax.codegen.models import drawn

pytestmark = pytest.mark.sample(every=15)


class This(nn.Module):
    """Its parameters are not called self."""

    def __init__(this, width=16, depth=3):
        super().__init__()
        this.inner = nn.Linear(8, width)
        this.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        this.scale = width**-0.5

    def forward(this, x):
        x = this.inner(x)
        for layer in this.layers:
            x = torch.relu(layer(x)) * this.scale
        return x


class Handed(This):
    """Whatever it gets is for its base class."""

    def __init__(net, *args, **more):
        super().__init__(*args, **more)
        net.out = nn.Linear(net.inner.out_features, 4)

    def forward(net, x):
        return net.out(super().forward(x))


class Deeper(Handed):
    """One of them is its own, one is the same in all of them."""

    def __init__(self, gain=0.5, *, depth=1, **more):
        super().__init__(depth=depth, **more)
        self.gain = gain

    def forward(self, x):
        return self.gain * super().forward(x)


def wrapped(init):
    @functools.wraps(init)
    def inner(self, *args, **more):
        init(self, *args, **more)

    return inner


def hidden(init):
    return lambda self, *args, **more: init(self, *args, **more)


class Wrapped(This):
    @wrapped
    def __init__(self, width=16, depth=3):
        super().__init__(width, depth)


class Hidden(This):
    @hidden
    def __init__(self, width=16, depth=3):
        super().__init__(width, depth)


LAYERS = "nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(depth)])"


@pytest.mark.parametrize("cls", [This, Handed, Wrapped, Hidden])
def test_arguments(cls):
    text = anyjax.flax.source(cls(width=12, depth=2), drawn(3, 8))
    assert "def __init__(self, width=12, depth=2, *, rngs: nnx.Rngs):" in text
    assert f"self.layers = {LAYERS}" in text
    assert "self.scale = width ** (-0.5)" in text or "self.scale = width**-0.5" in text


def test_arguments_of_their_own():
    text = anyjax.flax.source(Deeper(0.25, width=12, depth=2), drawn(3, 8))
    head = next(x for x in text.splitlines() if "def __init__" in x)
    assert {"gain=0.25", "depth=2", "width=12"} <= {*head.split("(")[1].split(", ")}


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = Handed(12, 2), Handed(16, depth=3)

    def forward(self, x):
        return self.one(x) + self.other(x)


@pytest.mark.parametrize("style", ["nnx", "linen"])
def test_arguments_of_instances(style):
    text = anyjax.flax.source(Both(), drawn(3, 8), style=style)
    assert "(12, 2" in text and "(16, 3" in text
