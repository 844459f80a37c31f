"""Activations where they bend, at infinity, and of NaN."""

import pytest
import torch
import torch.nn.functional as F

from tests.torch.beside_torch import (
    EDGES,
    FAR,
    INFINITE,
    NAN,
    assert_same_gradients,
    assert_same_values,
)

pytestmark = pytest.mark.sample(every=8)

NAMES = """relu relu6 hardtanh hardsigmoid hardswish silu mish leaky_relu elu selu celu logsigmoid
hardshrink softshrink tanhshrink softsign softplus gelu sigmoid tanh"""
FUNCTIONS = {name: getattr(F, name) for name in NAMES.split()}
FUNCTIONS |= {
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "threshold": lambda x: F.threshold(x, 0.5, 2.0),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.25])),
    "glu": lambda x: F.glu(torch.stack([x, x.flip(0)]), 0),
    "softmax": lambda x: F.softmax(torch.stack([x, x.flip(0)]), 0),
    "log_softmax": lambda x: F.log_softmax(torch.stack([x, x.flip(0)]), 0),
}
# torch's vectorised error function gives NaN at infinity, where gelu is inf.
OFF_AT_INFINITY = {"gelu"}


CASES = [(name, x) for name in FUNCTIONS for x in ("edges", "far", "infinite", "nan")]
NUMBERS = {"edges": EDGES, "far": FAR, "infinite": INFINITE, "nan": NAN}


@pytest.mark.parametrize(("name", "x"), CASES)
def test_values(name, x):
    if name not in OFF_AT_INFINITY or x != "infinite":
        assert_same_values(FUNCTIONS[name], NUMBERS[x], reduction=256)


@pytest.mark.parametrize(("name", "x"), [case for case in CASES if case[1] != "nan"])
def test_gradients(name, x):
    """Of NaN each kernel of torch has another one."""
    if name not in OFF_AT_INFINITY or x != "infinite":
        assert_same_gradients(FUNCTIONS[name], NUMBERS[x], reduction=256, scale=1.0)
