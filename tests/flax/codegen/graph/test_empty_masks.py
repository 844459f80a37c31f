"""Masks that may be empty decide about nothing that is written to their places alone."""

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import anyjax
from anyjax.errors import Unsupported
from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import assert_same_gradients, assert_same_values, prepared

pytestmark = pytest.mark.sample(every=15)


class Marked(nn.Module):
    """A token, an infinity and nothing, each at places that may be none."""

    def __init__(self):
        super().__init__()
        self.embed, self.mark = nn.Linear(4, 8), nn.Parameter(torch.randn(3, 8))

    def forward(self, x):
        y = self.embed(x)
        for i in range(3):
            mask = x[..., i] > i / 2
            if mask.any():
                y[mask] = self.mark[i]
        small = y < -1.5
        if torch.any(small):
            y = y.masked_fill(small, 0.0)
            y.masked_fill_(small, 0.0)
        return y


class Doubled(nn.Module):
    def forward(self, x):
        mask = x > 0
        if mask.any():
            x = 2 * x
        return x


class Indexed(nn.Module):
    """Whole numbers are places, of which 0 is one."""

    def forward(self, x):
        places, y = x.argmax(1), x.clone()
        if places.any():
            y[places] = 1.0
        return y


def test_branches_that_only_write_to_a_mask():
    torch.manual_seed(0)
    module, inputs = Marked().eval(), (drawn(3, 5, 4),)
    text, model = prepared(module, inputs)
    assert "jnp.where(" in text and "raise ValueError(" not in text.split("def load")[0]
    assert_same_values(module, model, inputs)
    assert_same_values(module, model, (drawn(2, 6, 4) - 9,))
    assert_same_values(module, model, (drawn(2, 6, 4) + 9,))
    assert_same_gradients(module, model, inputs)


@pytest.mark.parametrize("cls", [Doubled, Indexed])
def test_other_branches_are_refused(cls):
    with pytest.raises(Unsupported, match=r"[Dd]ata-dependent|decide"):
        anyjax.flax.source(cls().eval(), drawn(3, 3))
    assert not _get_current_function_mode_stack()
