"""What is said of loops."""

import numpy as np
import torch
from torch import nn

import anyjax
from anyjax.transforms import explain

X = np.ones((2, 8), np.float32)


def test_what_ends_a_loop():
    """The first equation that is another one, with its weight."""
    layers = [nn.Linear(8, 8) for _ in range(3)] + [nn.Linear(8, 4)]
    found = explain(anyjax.from_torch(nn.Sequential(*layers)), X)
    (loop,) = found.loops
    assert loop.rounds == 3 and loop.weights == ("*.weight", "*.bias")
    assert loop.ends.endswith("at 3.weight") and "f32[4,8]" in loop.ends
    assert found.alone == ("3.weight",) and (found.inside, found.products) == (3, 4)


def test_nothing_repeats():
    found = explain(anyjax.from_torch(torch.nn.Linear(8, 2)), X)
    assert str(found).splitlines() == [
        "0 loops, 0 of 1 matrix products in loops",
        "  not in a loop: weight",
    ]
