"""What begins as None and is read in the next call is missed where it is dropped."""

import warnings

import numpy as np
import pytest
from torch import nn

import anyjax
from anyjax.errors import StateDropped

pytestmark = pytest.mark.sample(every=4)

X = np.ones((2, 3), np.float32)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.hidden = nn.Linear(3, 3), None

    def forward(self, x):
        h = self.layer(x) if self.hidden is None else self.layer(x) + self.hidden
        self.hidden = h.tanh()
        return h


class Shown(nn.Module):
    """Leaves something for others to see, and a table that comes from weights alone."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen, self.table = nn.Linear(3, 3), None, None

    def forward(self, x):
        if self.table is None:
            self.table = self.layer.weight.tanh()
        self.seen = self.layer(x)
        return x @ self.table


@pytest.mark.parametrize("inside", [False, True])
def test_a_state_that_is_carried_on(inside):
    module = nn.Sequential(Recurrent()) if inside else Recurrent()
    model = anyjax.from_torch(module)
    with pytest.warns(StateDropped, match="hidden"):
        model(X)
    out, state = model.apply(model.params, X, mutable=True)
    name = "0.hidden" if inside else "hidden"
    assert [*state] == [name]
    again, _ = model.apply(model.params, X, state=state, mutable=True)
    np.testing.assert_allclose(again, out + np.tanh(out), rtol=1e-6)


def test_what_is_only_shown_is_not_missed():
    model = anyjax.from_torch(Shown())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(X)
