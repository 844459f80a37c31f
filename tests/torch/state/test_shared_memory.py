"""Tensors of a module in the same memory: a write to one of them is an error, reading is not."""

import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import Unsupported
from anyjax.torch.state.shared_memory import overlapping

X = np.ones(2, np.float32)


class Viewed(nn.Module):
    def __init__(self, writes, buffers):
        super().__init__()
        table, self.writes = torch.zeros(3, 2), writes
        for name, tensor in (("table", table), ("row", table[0]), ("rest", table[1:])):
            self.register_buffer(name, tensor) if buffers else setattr(self, name, tensor)

    def forward(self, x):
        if self.writes:
            getattr(self, self.writes).add_(1)
        return self.row * x + self.rest.sum()


@pytest.mark.parametrize("buffers", [False, True])
def test_only_writes_are_refused(buffers):
    model = anyjax.from_torch(Viewed(None, buffers))
    np.testing.assert_array_equal(model(X), 0 * X)
    for name, other in (("table", "row"), ("row", "table"), ("rest", "table")):
        model = anyjax.from_torch(Viewed(name, buffers))
        with pytest.raises(Unsupported, match=f"writes to {name}, in whose memory {other} lies"):
            model.apply(model.params, X, mutable=True)


def test_parts_of_one_memory_are_no_views_of_each_other():
    flat = torch.zeros(6)
    assert not overlapping({"a": flat[:2], "b": flat[2:], "c": torch.zeros(6), "number": 3})
    assert overlapping({"a": flat[:3], "b": flat[2:]}) == {"a": "b", "b": "a"}
    assert not overlapping({"a": flat, "b": flat})
