"""Numbers beside integers and bools, which torch cuts where it does not promote."""

import jax
import numpy as np
import pytest
import torch

import tojax
from tests.tolerance import assert_close

CASES = {
    "addcmul": lambda t: torch.addcmul(t, t, t, value=1.7),
    "addcmul, below zero": lambda t: torch.addcmul(t, t, t, value=-1.7),
    "addcmul, none of it": lambda t: t.clone().addcmul_(t, t, value=0.25),
    "addcmul of floats": lambda t: torch.addcmul(t, t.float(), t, value=0.25),
    "threshold": lambda t: torch.nn.functional.threshold(t, 2.5, 0.7),
    "threshold, below zero": lambda t: torch.nn.functional.threshold(t, -0.5, -1.7),
    "index_fill": lambda t: t.index_fill(0, torch.tensor([0, 2]), 1.7),
    "fill_": lambda t: t.clone().fill_(-1.7),
    "add of bools": lambda t: torch.add(t > 0, t > 3, alpha=-2),
    "add of a bool": lambda t: torch.add(t, t > 3, alpha=-2),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_beside_integers(name):
    x = np.array([1, 5, 3, -2, 0, 4])
    want = CASES[name](torch.from_numpy(x))
    got = jax.jit(tojax.from_torch(CASES[name]).apply)({}, x)
    assert got.dtype.kind == want.numpy().dtype.kind
    assert_close(got, want.numpy(), reduction=4)
