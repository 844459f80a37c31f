"""Modules that are called several times, which one class has to serve."""

import ast

import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import Unsupported
from anyjax.flax.codegen.module.class_code import canonical_code
from tests.flax.codegen.running import assert_same_values, prepared
from tests.flax.codegen.tables import drawn

pytestmark = pytest.mark.sample(every=15)


class Pair(nn.Module):
    """Two results, and parameters that are first read in another order than they are given."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, y):
        later = self.layer(y) - x
        return later, later.sigmoid() * 3


class Twice(nn.Module):
    def __init__(self, same):
        super().__init__()
        self.pair, self.same = Pair(), same

    def forward(self, x, y):
        first = self.pair(x, y)[0] + x
        return self.pair(y, first)[0 if self.same else 1]


def test_later_calls_take_their_inputs_as_the_first():
    torch.manual_seed(0)
    module, inputs = Twice(True).eval(), (drawn(3, 4), drawn(3, 4))
    _, model = prepared(module, inputs)
    assert_same_values(module, model, inputs)


def test_calls_that_give_different_results_are_refused():
    with pytest.raises(Unsupported, match="calls of pair that do different things") as error:
        anyjax.flax.source(Twice(False).eval(), drawn(3, 4), drawn(3, 4))
    assert "module/test_class_code.py" in str(error.value)


@pytest.mark.parametrize(
    "code, renamed, same",
    [
        ("a = f(a)\nreturn a", "b = f(a)\nreturn b", True),
        ("b = f(a)\nreturn b", "b = f(a)\nreturn a", False),
        ("for x in s:\n  a = x(a)\nreturn a", "for y in s:\n  a = y(a)\nreturn a", True),
        ("for x in s:\n  a = x(a)\nreturn a", "for x in s:\n  b = x(a)\nreturn b", False),
    ],
)
def test_code_is_the_same_whatever_its_values_are_called(code, renamed, same):
    texts = [canonical_code(["a"], ast.parse(x).body) for x in (code, renamed)]
    assert (texts[0] == texts[1]) is same
