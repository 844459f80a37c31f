import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import Unsupported
from anyjax.torch.state.snapshot import Snapshot

pytestmark = pytest.mark.sample(every=4)

ONES = np.ones((2, 4), np.float32)


class Config:
    def __init__(self):
        self.shift = 1.0


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.options, self.config = 2.0, {"power": [1]}, Config()
        self.layer = nn.Identity()

    def forward(self, x):
        x = self.layer(x) ** self.options["power"][0]
        return x * self.scale + self.config.shift


def change(net):
    net.scale, net.config.shift, net.options["power"][0] = 5.0, 7.0, 3
    net.layer = nn.Dropout(1.0)


@pytest.mark.parametrize("called", [False, True])
def test_later_changes_of_attributes_are_not_seen(called):
    net = Scaled()
    model = anyjax.from_torch(net)
    call = jax.jit(lambda model, x: model.apply(model.params, x))
    if called:
        assert (model(ONES)[0, 0], call(model, ONES)[0, 0]) == (3, 3)
    change(net)
    every = model(ONES), model.apply(model.params, ONES), call(model, ONES)
    assert [x[0, 0] for x in every] == [3, 3, 3]
    again = anyjax.from_torch(net).eval()
    assert (again(ONES)[0, 0], call(again, ONES)[0, 0]) == (12, 12)


def test_conversions_of_the_same_code_are_equal():
    net = Scaled()
    one, other = anyjax.from_torch(net), anyjax.from_torch(net)
    assert one.source == other.source and hash(one.source) == hash(other.source)
    assert jax.tree.structure(one) == jax.tree.structure(other)
    net.scale = 3.0
    assert anyjax.from_torch(net).source != one.source
    assert Snapshot.of(net) == Snapshot.of(net) != Snapshot.of(nn.Identity())


class Frozen(nn.Module):
    """Keeps its norm in eval mode, as detection models do, and changes an attribute."""

    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(1.0)
        self.rate = 0.0

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        self.rate = 3.0 if mode else 0.0
        for p in self.norm.parameters():
            p.requires_grad = False
        return self

    def forward(self, x):
        return self.norm(x) + self.rate if self.norm.training else self.drop(x) + self.rate


def test_train_asks_the_module():
    net = nn.Sequential(Frozen(), nn.Dropout(0.0)).eval()
    for p in net.parameters():
        p.requires_grad_(True)
    model = anyjax.from_torch(net)
    trained = model.train()
    assert trained.source.training == (True, True, False, True, True)
    assert trained == model.train() or trained.source == model.train().source
    assert trained(ONES, rng=jax.random.key(0))[0, 0] == 3
    assert model(ONES)[0, 0] == trained.eval()(ONES)[0, 0] == 1
    assert not net.training and net[0].rate == 0 and all(p.requires_grad for p in net.parameters())


def test_a_function_of_such_a_module():
    net = Frozen().eval()
    model = anyjax.from_torch(lambda x: net(x)).train()
    assert model(ONES, rng=jax.random.key(0))[0, 0] == 3 and not net.training


class Merged(nn.Linear):
    """Takes a low-rank update out of its weights to train it."""

    def train(self, mode=True):
        if mode:
            self.weight.data -= 1
        return super().train(mode)


class Reads(nn.Linear):
    def train(self, mode=True):
        return super().train(bool(self.weight.sum() > 100) and mode)


@pytest.mark.parametrize("kind", [Merged, Reads])
def test_train_that_needs_the_weights_is_refused(kind):
    net = kind(4, 4).eval()
    before = net.weight.detach().clone()
    model = anyjax.from_torch(net)
    with pytest.raises(Unsupported, match="convert that again"):
        model.train()
    assert torch.equal(net.weight, before)
