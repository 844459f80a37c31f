"""Writes through parts of arrays, which change the whole, and what else looks at it."""

import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import Unsupported
from tests.flax.codegen.models import drawn

pytestmark = pytest.mark.sample(every=15)


class Writes(nn.Module):
    """What ``change`` makes of an array that has a gradient."""

    def __init__(self, change):
        super().__init__()
        self.change, self.scale = change, nn.Parameter(torch.ones(1))

    def forward(self, x):
        y = x * self.scale
        part = self.change(y)
        return y, y.sum(-1), part


def put(view):
    """Seven in the place 0 of a part."""

    def change(y):
        row = view(y)
        row[0] = 7
        return row

    return change


PARTS = {
    "view": lambda y: y.view(-1),
    "view of rows": lambda y: y.view(y.shape[0], -1)[1:, 3],
    "flatten": lambda y: y.flatten(1),
    "unflatten": lambda y: y.unflatten(1, (2, 2))[:, 1],
    "ravel": lambda y: y.ravel(),
    "view_as": lambda y: y.view_as(y),
    "unsqueeze": lambda y: y[:, None],
    "squeeze": lambda y: y[:, :1].squeeze(1),
    "mT": lambda y: y.mT,
    "swapaxes": lambda y: y.swapaxes(0, 2),
    "movedim": lambda y: y.movedim(0, 2),
    "permute": lambda y: y.permute(2, 0, 1)[1:3, :, 0],
    "narrow": lambda y: y.narrow(1, 1, 2),
    "select": lambda y: y.select(dim=-1, index=-2),
    "slice": lambda y: y[:, 1::2],
    "diagonal": lambda y: y.diagonal(1, 1, 2),
    "diagonal below": lambda y: y.diagonal(-1, -2, -1),
    "part of a part": lambda y: y[1:].mT[:, 2:].flatten(1),
}


@pytest.mark.parametrize("view", PARTS)
def test_parts(view):
    anyjax.flax.source(Writes(put(PARTS[view])), drawn(3, 4, 5))


def several(y):
    rows, columns = y.view(y.shape[0], -1), y.mT[:, 0]
    rows.mul_(2)
    columns.add_(rows[:, 7:8])
    rows[:, :2].zero_()
    return columns


def divided(divide):
    def change(y):
        with torch.no_grad():
            for i, piece in enumerate(divide(y)):
                piece.mul_(i + 2)

    return change


def outside(y):
    with torch.no_grad():
        tripled = y * 3
        tripled.mul_(y)
        y[:, 0].mul_(2)
    return tripled


def copies(y):
    turned = y.mT.contiguous()
    turned[0], y[0] = 1, 2
    integers = y.long()
    narrow = integers.to(torch.int32)
    narrow[0] = 3
    return turned, integers, narrow


def kinds(y):
    half = y.half()
    half.add_(y)
    integers = y.long()
    integers.copy_(3.7 * y)
    below = y.clone().lt_(0.3)
    integers &= 6
    integers <<= 2
    return half, integers, below


CHANGES = {
    "several": several,
    "chunk": divided(lambda y: y.chunk(2, 1)),
    "split": divided(lambda y: y.split([1, 3], -2)),
    "unbind": divided(lambda y: y.unbind(2)),
    "outside": outside,
    "copies": copies,
    "kinds": kinds,
    "fill_diagonal_": lambda y: y[0].fill_diagonal_(3),
    "masked": lambda y: y.view(-1).masked_fill_(y.view(-1) > 0, 5),
    "index_add": lambda y: y.view(-1).index_add_(0, torch.tensor([1, 3]), torch.ones(2)),
    "scatter": lambda y: y.mT.scatter_(1, torch.zeros(1, 1, 4, dtype=torch.long), 9.0),
    "gather": lambda y: y.mul_(2).gather(1, torch.ones(2, 2, 3, dtype=torch.long)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes(change):
    anyjax.flax.source(Writes(CHANGES[change]), drawn(3, 4, 5))


@pytest.mark.parametrize(
    "view", [lambda y: y.unfold(2, 2, 2), lambda y: y.as_strided((2, 2), (20, 1))]
)
def test_parts_that_cannot_be_put_back(view):
    with pytest.raises(
        Unsupported, match=r"(?s)a write through aten\..*test_functionalize\.py:\d+"
    ):
        anyjax.flax.source(Writes(lambda y: view(y).mul_(2)), drawn(3, 4, 5))


class Out(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        torch.mul(x, 3, out=y)
        torch.pow(y, 2, out=y)
        return y, torch.clamp(y, 0, 1, out=torch.empty_like(x))


def test_out():
    anyjax.flax.source(Out(), drawn(3, 4))
