"""Functions that take a Python number, given a traced one of which only values follow."""

import jax
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import anyjax
from anyjax.errors import DataDependent
from tests.tolerance import assert_close
from tests.torch.beside_torch import assert_same_gradients

pytestmark = pytest.mark.sample(every=4)

X, V = np.array([[-3.0, 0.5, 2.0]], np.float32), np.float32(1.5)
ROW = torch.tensor([[1]])
CASES = {
    "full": lambda x, v: torch.full((2, 3), v) * x,
    "full of an item": lambda x, v: torch.full([3], v.item()) * x,
    "full_like": lambda x, v: torch.full_like(x, v) * x,
    "new_full": lambda x, v: x.new_full((3,), v) * x,
    "fill_": lambda x, v: x.clone().fill_(v) + x,
    "written to": lambda x, v: torch.full((3,), v).mul_(x[0]),
    "masked_fill": lambda x, v: x.masked_fill(x > 1, v),
    "scatter": lambda x, v: x.scatter(1, ROW, v.item()),
    "scatter_": lambda x, v: x.clone().scatter_(1, ROW, v.item()),
    "pad": lambda x, v: F.pad(x, (1, 2), value=v.item()),
    "leaky_relu": lambda x, v: F.leaky_relu(x, v.item()),
    "elu": lambda x, v: F.elu(x, v.item()),
    "threshold": lambda x, v: F.threshold(x, v.item(), 0.25),
    "hardshrink": lambda x, v: F.hardshrink(x, v.item()),
    "softshrink": lambda x, v: F.softshrink(x, v.item()),
    "clamp": lambda x, v: x.clamp(max=v.item()),
    "addmm": lambda x, v: torch.addmm(x, x[:, :1], x, beta=v.item(), alpha=v.item()),
    "baddbmm": lambda x, v: torch.baddbmm(x[None], x[None, :, :1], x[None], alpha=v.item()),
    "add": lambda x, v: torch.add(x, x, alpha=v.item()),
    "addcdiv_": lambda x, v: x.clone().addcdiv_(x, x + 9, value=v.item()),
    "linspace": lambda x, v: torch.linspace(0, v, 3) * x,
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    want = CASES[name](torch.from_numpy(X), torch.tensor(V))
    got = jax.jit(anyjax.from_torch(CASES[name]).apply)({}, X, V)
    assert got.dtype == want.numpy().dtype
    assert_close(got, want.numpy(), reduction=8)


@pytest.mark.parametrize("name", ["full", "pad", "elu", "scatter", "addmm"])
def test_gradients_by_the_array(name):
    assert_same_gradients(lambda x: CASES[name](x, torch.tensor(1.5)), X, reduction=8)
    by = jax.grad(lambda v: anyjax.from_torch(CASES[name]).apply({}, X, v).sum())(V)
    assert by == 0  # as in torch, which reads a number


@pytest.mark.parametrize(
    ("value", "dtype"), [(np.int32(3), np.int32), (np.bool_(True), bool), (V, np.float32)]
)
def test_the_dtype_is_that_of_the_number(value, dtype):
    assert anyjax.from_torch(lambda v: torch.full((2,), v))(value).dtype == dtype


def test_a_size_has_to_be_known():
    with pytest.raises(DataDependent):
        jax.jit(anyjax.from_torch(lambda v: torch.arange(v)).apply)({}, np.int32(3))
