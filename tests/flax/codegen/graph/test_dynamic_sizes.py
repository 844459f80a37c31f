"""Modules whose sizes are long expressions of the inputs'."""

import pytest
import torch

from tests.flax.codegen.running import arrays, assert_same_values, prepared
from tests.flax.codegen.tables import drawn


class Shifted(torch.nn.Module):
    """Pads a picture to whole windows, several times over."""

    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList([torch.nn.Conv2d(2, 2, 3, 2) for _ in range(4)])

    def forward(self, x):
        for size, conv in zip((7, 5, 3, 2), self.convs):
            height, width = (n + (size - n % size) % size for n in x.shape[2:])
            x = torch.nn.functional.pad(x, (0, width - x.shape[3], 0, height - x.shape[2]))
            x = conv(x).repeat(1, 1, 2, 2)
        return x.mean((2, 3))


def test_only_the_batch_varies():
    torch.manual_seed(0)
    module = Shifted().eval()
    _, model = prepared(module, (drawn(2, 2, 9, 11),))
    assert_same_values(module, model, (drawn(3, 2, 9, 11),))
    with pytest.raises(ValueError, match=r"\(2, 9, 11\)"):
        model(*arrays([drawn(2, 2, 12, 11)]))
