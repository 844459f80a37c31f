"""Forward hooks that collect activations: what they leave has no values, and that is said."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import StateDropped

pytestmark = pytest.mark.sample(every=4)

X = np.ones((1, 2), np.float32)
everywhere = {}


def network():
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))


class Recorder:
    def __init__(self):
        self.outputs = {}

    def hook(self, module, args, out):
        self.outputs["relu"] = [out]

    def watch(self, module):
        module[1][0].register_forward_hook(self.hook)


def into_a_dict(module):
    activations = {}
    module[1][0].register_forward_hook(lambda m, args, out: activations.update(relu=out))


def into_a_list(module):
    inputs = []
    module[1][0].register_forward_pre_hook(lambda m, args: inputs.append(args[0].detach()))


def into_a_global(module):
    module[0].register_forward_hook(lambda m, args, out: everywhere.update(first=out))


@pytest.mark.parametrize(
    "watch", [into_a_dict, into_a_list, into_a_global, lambda m: Recorder().watch(m)]
)
def test_a_hook_that_collects_is_named(watch):
    module = network()
    watch(module)
    model = anyjax.from_torch(module)
    with pytest.warns(StateDropped, match=r"a forward hook of .*test_collected\.py:\d+"):
        out = model(X)
    everywhere.clear()
    np.testing.assert_allclose(out, module(torch.tensor(X)).detach(), rtol=1e-6)


def test_a_hook_that_collects_nothing_is_not():
    module, shapes, weight = network(), [], torch.ones(2)
    module[0].register_forward_hook(lambda m, args, out: shapes.append(tuple(out.shape)))
    module[0].register_forward_hook(lambda m, args, out: out * weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        anyjax.from_torch(module)(X)
    assert shapes == [(1, 2)]
