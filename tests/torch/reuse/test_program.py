"""What blocks compute: draws, regions of their own, blocks in blocks."""

import numpy as np
import pytest
import torch
from torch import nn

import tojax
from tests.torch.reuse.nets import Block, Cases, Net, X, base, kind, net, setting, sharing
from tojax.errors import FrozenDraw

CASES = Cases()


@CASES(0)
def another_program_in_each():
    def step(self, block, i, x):
        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)

    return net(step, kind(lambda self, x: base(self, x) * self.index))


class Doubled(torch.autograd.Function):
    """Twice the value, with a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


@CASES(0)
def gradients_of_their_own():
    return Net(kind(lambda self, x: base(self, Doubled.apply(x))))


@CASES(4)
def checkpoints():
    step = lambda self, b, i, x: torch.utils.checkpoint.checkpoint(b, x, use_reentrant=False)
    return net(step).train()


@CASES(0)
def checkpoints_inside():
    again = lambda self, x: torch.utils.checkpoint.checkpoint(self.linear, x, use_reentrant=False)
    return Net(kind(again)).train()


@CASES(5)
def dropout():
    return Net(kind(lambda self, x: nn.functional.dropout(base(self, x), 0.5))).train()


@CASES(0)
def a_detached_value():
    return Net(kind(lambda self, x: base(self, x) + x.detach()))


@CASES(0)
def loops():
    def forward(self, x):
        double = lambda x: (x * 2,)
        return torch.while_loop(lambda x: x.sum() < 9, double, (base(self, x),))[0]

    return Net(kind(forward))


@CASES(0)
def gradients_that_forward_takes():
    def forward(self, x):
        y = base(self, x)
        return y + torch.autograd.grad(y.sum(), self.linear.weight, create_graph=True)[0].sum()

    return Net(kind(forward))


@CASES(0)
def a_condition():
    return Net(kind(lambda self, x: base(self, x) if x.sum() > self.linear.bias.sum() else x * 2))


@CASES(5)
def blocks_in_blocks():
    inner = lambda i: nn.ModuleList(map(Block, range(5)))

    def forward(self, x):
        for block in self.inner:
            x = block(x)
        return x

    return Net(kind(forward), setting(inner=inner))


@CASES(5)
def blocks_in_blocks_on_what_these_computed():
    inner = lambda i: nn.ModuleList(map(Block, range(5)))

    def forward(self, x):
        x = self.linear(x)
        for block in self.inner:
            x = block(x * 2) + 1
        return x

    return Net(kind(forward), setting(inner=inner))


@CASES(4)
def blocks_in_blocks_one_of_which_is_another():
    def inner(i):
        made = nn.ModuleList(map(Block, range(5)))
        if i == 3:
            made[2].forward = lambda x: x * 2.0
        return made

    def forward(self, x):
        for block in self.inner:
            x = block(x)
        return x

    return Net(kind(forward), setting(inner=inner))


def test_draws_of_numpy():
    """Each block draws its own number, and the user is told."""
    forward = lambda self, x: base(self, x) * float(np.random.rand())
    outs = []
    for convert in (sharing, tojax.from_torch):
        np.random.seed(0)
        with pytest.warns(FrozenDraw):
            outs.append(np.asarray(convert(Net(kind(forward)))(X)))
    assert (outs[0] == outs[1]).all()


@pytest.mark.parametrize("name", CASES)
def test_same(name):
    CASES.check(name)
