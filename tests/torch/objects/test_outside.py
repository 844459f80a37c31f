"""What a module's code and hooks reach outside of it: carried as state, and put back."""

import copy
import warnings

import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import StateDropped

pytestmark = pytest.mark.sample(every=4)

X = np.ones((1, 2), np.float32)
everywhere = {}
MEMORY, TABLE = {}, None


def network():
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))


class Recorder:
    def __init__(self):
        self.outputs = {}

    def hook(self, module, args, out):
        self.outputs["relu"] = [out]

    def watch(self, module):
        module[1][0].register_forward_hook(self.hook)
        return self.outputs


def into_a_dict(module):
    activations = {}
    module[1][0].register_forward_hook(lambda m, args, out: activations.update(relu=out))
    return activations


def into_a_list(module):
    inputs = []
    module[1][0].register_forward_pre_hook(lambda m, args: inputs.append(args[0].detach()))
    return inputs


def into_a_global(module):
    module[0].register_forward_hook(lambda m, args, out: everywhere.update(first=out))
    return everywhere


HOOKS = {
    "activations.relu": into_a_dict,
    "inputs.0": into_a_list,
    "everywhere.first": into_a_global,
    "self.outputs.relu.0": lambda module: Recorder().watch(module),
}


@pytest.mark.parametrize("name", HOOKS)
def test_what_a_hook_collects_is_state(name):
    module = network()
    collected = HOOKS[name](module)
    model = anyjax.from_torch(module)
    with pytest.warns(StateDropped, match=f"wrote to {name}"):
        out = model(X)
    assert not collected
    _, state = model.apply(model.params, X, mutable=True)
    np.testing.assert_allclose(out, module(torch.tensor(X)).detach(), rtol=1e-6)
    value = collected if isinstance(collected, list) else [*collected.values()]
    value = value[0][0] if isinstance(value[0], list) else value[0]
    np.testing.assert_allclose(state[name], value.detach(), rtol=1e-6)
    everywhere.clear()


def test_a_hook_that_collects_nothing_is_not():
    module, shapes, weight = network(), [], torch.ones(2)
    module[0].register_forward_hook(lambda m, args, out: shapes.append(tuple(out.shape)))
    module[0].register_forward_hook(lambda m, args, out: out * weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        anyjax.from_torch(module)(X)
    assert shapes == [(1, 2)]


class InAGlobal(nn.Module):
    def forward(self, x):
        MEMORY["total"] = MEMORY.get("total", 0) + x
        return MEMORY["total"] * 1


class InAGlobalVariable(nn.Module):
    def forward(self, x):
        global TABLE
        TABLE = x if TABLE is None else TABLE + x
        return TABLE * 1


class InAClass(nn.Module):
    total = torch.zeros(1, 2)

    def forward(self, x):
        type(self).total = self.total + x
        return self.total * 1


class InPlaceInAClass(nn.Module):
    totals = [torch.zeros(1, 2)]

    def forward(self, x):
        return self.totals[0].add_(x) * 1


class InADefault(nn.Module):
    def forward(self, x, memory=[]):  # noqa: B006
        memory.append(x)
        return sum(memory)


def in_a_closure():
    total = torch.zeros(1, 2)

    class InAClosure(nn.Module):
        def forward(self, x):
            nonlocal total
            total = total + x
            return total * 1

    return InAClosure()


MODULES = {
    "MEMORY.total": InAGlobal,
    "TABLE": InAGlobalVariable,
    "total": InAClass,
    "totals.0": InPlaceInAClass,
    "memory": InADefault,
    "in a closure": in_a_closure,
}


@pytest.mark.parametrize("name", MODULES)
def test_state_outside_of_a_module_is_carried_and_put_back(name):
    """Its class, the globals and the function around it are as they were."""
    holders = [MEMORY, InAClass.total, InPlaceInAClass.totals, InADefault.forward.__defaults__]
    before = copy.deepcopy(holders)
    model = anyjax.from_torch(MODULES[name]())
    run = jax.jit(lambda state, x: model.apply(model.params, x, state=state, mutable=True))
    state, outs = model.state, []
    for _ in range(3):
        try:
            out, state = run(state, X)
        finally:
            assert str(holders) == str(before) and TABLE is None
        outs.append(float(out[0, 0]))
    assert outs == [1, 2, 3]


def test_a_cache_that_forward_fills_is_empty_again():
    cache = {}

    class Positions(nn.Module):
        def forward(self, x):
            if "table" not in cache:
                cache["table"] = torch.arange(2.0)
            return x + cache["table"]

    module = Positions()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = anyjax.from_torch(module)(X)
    assert cache == {}
    np.testing.assert_array_equal(out, module(torch.tensor(X)))
