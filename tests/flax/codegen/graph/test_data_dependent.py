"""Sizes that numbers in arrays decide."""

import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported
from tests.flax.codegen.running import arrays, assert_same_values, prepared
from tests.flax.codegen.tables import Rounds, Tower, drawn

pytestmark = pytest.mark.sample(every=15)


def test_an_array_of_sizes_is_a_constant():
    torch.manual_seed(0)
    module, inputs = Tower().eval(), (drawn(14, 6), torch.tensor([[2, 3], [4, 2]]))
    text, model = prepared(module, inputs)
    assert "def __call__(self, patches):" in text
    with torch.no_grad():
        want = module(*inputs).numpy()
    np.testing.assert_allclose(model(*arrays(inputs[:1])), want, rtol=1e-5, atol=1e-5)


def test_sizes_that_reach_such_numbers_are_fixed():
    module, inputs = Rounds().eval(), (drawn(2, 7, 8),)
    _, model = prepared(module, inputs)
    assert_same_values(module, model, inputs)
    with pytest.raises(ValueError, match=r"\(2, 7, 8\)"):
        model(*arrays([drawn(2, 9, 8)]))


class Counts(torch.nn.Module):
    def forward(self, x, mask):
        return x[:, : int(mask.sum())].sum(1)


class Longest(torch.nn.Module):
    def forward(self, tokens):
        return torch.nn.functional.one_hot(tokens, int(tokens.max()) + 1).float()


@pytest.mark.parametrize(
    "module, inputs",
    [
        (Counts(), (drawn(2, 6), torch.ones(2, 6, dtype=torch.long))),
        (Longest(), (torch.arange(6),)),
    ],
)
def test_what_each_call_decides_anew_is_refused(module, inputs):
    with pytest.raises(Unsupported):
        anyjax.flax.source(module, *inputs)
