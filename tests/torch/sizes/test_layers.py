"""Mixtures of experts as a loop over the rows that each expert is given."""

import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import DataDependent
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


def masks(self, x, weights):
    out = torch.zeros_like(x)
    top, chosen = weights.max(-1)
    for i, expert in enumerate(self.experts):
        mask = chosen == i
        out[mask] = expert(x[mask]) * top[mask, None]
    return out


def only_those_that_are_hit(self, x, weights):
    out = torch.zeros_like(x)
    top, chosen = weights.max(-1)
    for i, expert in enumerate(self.experts):
        mask = chosen == i
        if mask.any():
            out[mask] += expert(x[mask]) * top[mask].unsqueeze(-1)
    return out


def rows_and_choices(self, x, weights):
    out = torch.zeros_like(x)
    top, chosen = weights.topk(2, -1)
    for i, expert in enumerate(self.experts):
        rows, choice = torch.where(chosen == i)
        out[rows] += top[rows, choice, None] * expert(x[rows])
    return out


def added(self, x, weights):
    out = torch.zeros_like(x)
    top, chosen = weights.topk(2, -1)
    mask = nn.functional.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
    for i, expert in enumerate(self.experts):
        choice, rows = mask[i].nonzero(as_tuple=True)
        out.index_add_(0, rows, (expert(x[rows]) * top[rows, choice, None]).to(x.dtype))
    return out


def capacity(self, x, weights):
    out = torch.zeros_like(x)
    top, chosen = weights.max(-1)
    for i, expert in enumerate(self.experts):
        rows = (chosen == i).nonzero(as_tuple=True)[0][:2]
        out[rows] = expert(x[rows]) * top[rows, None]
    return out


def dropped(self, x, weights):
    out = x.clone()
    top, chosen = weights.max(-1)
    hits = nn.functional.one_hot(chosen, len(self.experts))
    hits = hits * (hits.cumsum(0) <= 2)
    for i, expert in enumerate(self.experts):
        mask = hits[:, i].bool()
        out[mask] = expert(x[mask]) * top[mask, None]
    return out


def skipped(self, x, weights):
    out = torch.zeros_like(x)
    chosen = weights.argmax(-1)
    for i, expert in enumerate(self.experts):
        rows = (chosen == i).nonzero().squeeze(-1)
        if rows.numel() == 0:
            continue
        out[rows] = expert(x[rows])
    out[rows, 0] = 3.0
    return out


class Mixture(nn.Module):
    def __init__(self, loop, count):
        super().__init__()
        self.loop = loop
        self.gate, self.experts = nn.Linear(4, count), nn.ModuleList()
        for _ in range(count):
            self.experts.append(nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 4)))

    def forward(self, x):
        return self.loop(self, x, self.gate(x).softmax(-1))


LOOPS = [masks, only_those_that_are_hit, rows_and_choices, added, capacity, dropped, skipped]


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("loop", LOOPS)
def test_experts_in_a_loop(loop, count):
    torch.manual_seed(count)
    module = Mixture(loop, count)
    with torch.no_grad():
        module.gate.bias[0] = -100  # nobody's choice
    model, x = anyjax.from_torch(module), torch.tensor(X, requires_grad=True)
    want = module(x)
    assert_close(model(X), want.detach().numpy(), reduction=32)
    loss = jax.jit(jax.grad(lambda p, x: (model.apply(p, x) ** 2).sum(), (0, 1)))
    grads, grad = loss(model.params, X)
    (want**2).sum().backward()
    assert_close(grad, x.grad.numpy(), rtol=1e-4)
    for name, parameter in module.named_parameters():
        own = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        assert_close(grads[name], own.numpy(), rtol=1e-4)


def test_no_experts_and_no_rows():
    none = nn.Module()
    none.experts = []
    model = anyjax.from_torch(lambda x: masks(none, x, x))
    assert not np.asarray(model(X)).any()
    np.testing.assert_array_equal(anyjax.from_torch(added_nothing)(X), X)


def added_nothing(x):
    rows = (x[:, 0] > 99).nonzero(as_tuple=True)[0]
    return x.index_add(0, rows, x[rows] + 5)


REFUSED = {
    "other rows": lambda x, r, other: x.index_add(0, r, x[other]),
    "another dimension": lambda x, r, other: x.index_add(1, r, x[r]),
    "written with others": lambda x, r, other: x.__setitem__(r, x[other]),
    "places of two kinds": lambda x, r, other: x[r, other],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    def forward(x):
        rows = (x[:, 0] > 0).nonzero(as_tuple=True)[0]
        other = (x[:, 1] > 0).nonzero(as_tuple=True)[0]
        out = REFUSED[name](x.clone(), rows, other)
        return x if out is None else out.sum()

    with pytest.raises(DataDependent):
        anyjax.from_torch(forward)(X)
