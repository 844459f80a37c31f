"""What torch.compile and torch.export made is converted like what they were given."""

import pickle

import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

# torch says so of all of torch.jit, which Inductor imports.
pytestmark = [
    pytest.mark.sample(every=4),
    pytest.mark.filterwarnings("ignore:.torch.jit.*deprecated:DeprecationWarning"),
]

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))


def in_place(module):
    module.compile()
    return module


KINDS = {
    "compiled": torch.compile,
    "in place": in_place,
    "not to be compiled": torch.compiler.disable,
    "exported": lambda module: torch.export.export(module, (X,)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_modules(kind):
    model = anyjax.from_torch(KINDS[kind](layers()))
    assert list(model.params) == [k for k, _ in layers().named_parameters()]
    assert_close(model(X), layers()(X), reduction=32)


def test_parts_and_functions():
    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = torch.compile(layers())

        @torch.compile
        def twice(self, x):
            return 2 * x

        def forward(self, x):
            return self.twice(self.part(x))

    plain = layers()
    model = anyjax.from_torch(Whole())
    assert "part._orig_mod.0.weight" in model.params  # as in torch's state_dict
    assert_close(model(X), 2 * plain(X), reduction=32)
    function = anyjax.from_torch(torch.compile(lambda x: torch.sin(plain(x))))
    assert len(function.params) == 4
    assert_close(function(X), torch.sin(plain(X)), reduction=32)


NET, SCALE = torch.nn.Linear(4, 3), torch.tensor(2.0)


def knows_globals(x):
    return torch.relu(NET(x)) * SCALE


@pytest.mark.parametrize("function", [knows_globals, NET.forward], ids=["globals", "method"])
def test_pickles_of_functions(function):
    """The function computes with the params that it is given."""
    model = anyjax.from_torch(function)
    want = model(X)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back(X), want)
    assert not back.apply({k: 0 * v for k, v in back.params.items()}, X).any()
    assert model.params.keys() == back.params.keys() != set()
