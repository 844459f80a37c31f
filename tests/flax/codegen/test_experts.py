"""Experts that loop over those that are hit, where their configuration knows another way."""

import importlib
from types import SimpleNamespace

import torch
from torch import nn

from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import assert_same_gradients, assert_same_values, prepared


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(_experts_implementation="eager")
        self.up = nn.Parameter(torch.randn(3, 4, 4))

    def forward(self, x):
        chosen = x[:, :3].argmax(-1)
        if self.config._experts_implementation == "grouped_mm":
            return (x[:, None] @ self.up[chosen])[:, 0]
        out = torch.zeros_like(x)
        for expert in chosen.unique():
            rows = torch.where(chosen == expert)[0]
            out.index_add_(0, rows, x[rows] @ self.up[expert])
        return out


def test_a_loop_over_experts_that_are_hit():
    torch.manual_seed(0)
    module, inputs = Experts().eval(), (drawn(5, 4),)
    _, model = prepared(module, inputs)
    assert_same_values(module, model, inputs)
    assert_same_values(module, model, (drawn(7, 4),))
    assert_same_gradients(module, model, inputs)
    assert module.config._experts_implementation == "eager"


class ParallelExperts(nn.Module):
    """Rows in the order of the experts, and how many each of these has."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 5, 4))

    def forward(self, inputs, counts):
        groups = inputs.split(counts, dim=0)
        return torch.cat([rows @ matrix.T for rows, matrix in zip(groups, self.weight)])


class Sorted(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = ParallelExperts()

    def forward(self, x):
        chosen = x[:, :3].argmax(-1)
        counts = nn.functional.one_hot(chosen, 3).sum(0).tolist()
        order = chosen.argsort(stable=True)
        return self.experts(x[order], counts)[order.argsort()]


def test_experts_that_split_what_they_are_given_by_counts():
    importlib.import_module("transformers.integrations.moe")  # whose operator stands for them
    torch.manual_seed(0)
    module, inputs = Sorted().eval(), (drawn(9, 4),)
    text, model = prepared(module, inputs)
    assert "jax.lax.ragged_dot(" in text
    assert_same_values(module, model, inputs)
    assert_same_values(module, model, (drawn(5, 4),))
    assert_same_gradients(module, model, inputs)
    assert "forward" not in vars(module.experts)
