import flax.linen as nn
import numpy as np
import pytest
import torch
from flax import nnx

from anyjax.errors import ForwardFailed, WrongWeights
from anyjax.flax import load_into
from tests.flax.torch_side import lively, normal


class Linen(nn.Module):
    epsilon: float

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.LayerNorm(self.epsilon)(nn.Dense(5)(x)))


def test_the_first_that_differs_in_linen():
    layers = torch.nn.Linear(4, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 3)
    theirs, x = lively(torch.nn.Sequential(*layers)), normal(2, 4)
    load_into(Linen(1e-5), theirs, example=(x,))
    told = r"LayerNorm_0 \(torch: 1\) .*\n.*epsilon 0.5, torch's 1 1e-05"
    with pytest.raises(WrongWeights, match=told):
        load_into(Linen(0.5), theirs, example=(x,))


def test_an_epsilon_that_is_not_torchs_is_noted():
    norm = nnx.LayerNorm(5, rngs=nnx.Rngs(0))
    _, report = load_into(norm, lively(torch.nn.LayerNorm(5)))
    assert report.notes == ("scale has epsilon 1e-06, torch's weight 1e-05",)


class Broken(nnx.Linear):
    def __call__(self, x):
        raise KeyError("broken")


def test_a_flax_forward_that_fails_is_told():
    ours = Broken(4, 3, rngs=nnx.Rngs(0))
    with pytest.raises(ForwardFailed, match="KeyError: 'broken'"):
        load_into(ours, torch.nn.Linear(4, 3), example=(np.ones((2, 4), np.float32),))
