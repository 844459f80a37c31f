"""One lowering of a call: what holds in a trace holds on JAX, in interop and in torch.compile."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import anyjax
from anyjax.errors import AnyjaxError
from anyjax.torch import interop
from tests.tolerance import assert_close


def on_jax(function, *tensors):
    with anyjax.torch.on_jax():
        return function(*map(interop.to_jax, tensors)).torch()


def outside(function, *tensors):
    return function(*map(interop.to_jax, tensors)).torch()


def jitted(function, *tensors):
    return interop.jax_jit(function)(*map(interop.to_jax, tensors)).torch()


def traced(function, *tensors):
    out = torch.tensor(np.asarray(anyjax.from_torch(function)(*[x.numpy() for x in tensors])))
    return out.long() if out.dtype is torch.int32 else out


WAYS = {
    "from_torch": traced,
    "on_jax": on_jax,
    "outside": outside,
    "jit": jitted,
    "compile": lambda f, *xs: torch.compile(f, backend="anyjax")(*xs),
}
I, J, X = torch.tensor([7, -8]), torch.tensor([2, 3]), torch.arange(4.0).reshape(1, 1, 2, 2)


def into(function, *args):
    """With ``out=``, of the shape that the function gives."""
    out = torch.full_like(function(*args), 7)
    assert function(*args, out=out) is out
    return out


FUNCTIONS = {
    "floor_divide": (lambda x, y: x // y, I, J),
    "remainder": (lambda x, y: x % y, I, J),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), X),
    "one_hot": (lambda x: F.one_hot(x, 8), I.abs() % 8),
    "rank": (torch.linalg.matrix_rank, X[0, 0]),
    "norm": (lambda x: torch.linalg.vector_norm(x[..., :1], dim=-1), X),
    "kron": (lambda x: into(torch.kron, x, x), X[0, 0]),
    "linalg norm": (lambda x: into(torch.linalg.norm, x), X),
    "zeros": (lambda x: torch.zeros(2, out=x[0, 0, 0] * 1), X),
    "linspace": (lambda x: into(torch.linspace, x[0, 0, 0, 0], x[0, 0, 1, 1], 3), X),
    "nuclear norm": (lambda x: into(lambda y, **out: torch.norm(y, "nuc", **out), x[0, 0]), X),
    "matmul": (lambda x: into(torch.matmul, x, x[0, 0, 0]), X),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_operators_hold_in_all_ways(name, way):
    function, *tensors = FUNCTIONS[name]
    want = function(*tensors)
    got = WAYS[way](function, *tensors)
    assert got.dtype is want.dtype
    assert_close(got, want, reduction=8)


@pytest.mark.parametrize("way", ["on_jax", "outside", "jit", "compile"])
def test_division_by_zero_is_an_error_in_all_ways(way):
    with pytest.raises(AnyjaxError):
        WAYS[way](lambda x, y: x // y, I, torch.tensor([1, 0]))


def test_an_out_that_cannot_hold_the_result():
    for way in ("from_torch", "on_jax"):
        with pytest.raises(AnyjaxError, match="kron"):
            WAYS[way](lambda x: torch.kron(x, x, out=torch.zeros(3)), X[0, 0])


def test_large_integers_of_parts_are_checked():
    x = torch.tensor([2**20, 2**20])
    with pytest.raises(AnyjaxError, match=r"beyond 2\*\*31"):
        WAYS["on_jax"](lambda x: torch.inner(x, x), x)


def test_a_function_of_jax_with_a_key_of_none():
    x = jax.numpy.asarray(X.numpy())
    attend = interop.jax_view(lambda x: F.scaled_dot_product_attention(x, x, x))
    assert_close(jax.jit(attend)(x), attend(x), reduction=8)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
@pytest.mark.parametrize("ends", [(3.7,), (0.5, 3.7), (-1.5, 2.5), (5.5, 0.2, -1.5), (100000.7,)])
def test_ranges_are_counted_as_torch_counts(ends, dtype):
    want = torch.arange(*ends, dtype=dtype)
    with anyjax.torch.on_jax():
        got = torch.arange(*ends, dtype=dtype)
    assert_close(got.torch(), want)
    traced = anyjax.from_torch(lambda x: x + torch.arange(*ends, dtype=dtype))
    assert traced(np.zeros((), np.float32)).shape == want.shape


def test_the_default_dtype_may_change_between_calls():
    function = lambda x: x / 2
    x, tensor = np.ones(2, np.int32), interop.to_jax(I)
    model, program = anyjax.from_torch(function), interop.jax_jit(function)
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            assert program(tensor).dtype is function(tensor).dtype is dtype
            assert str(model(x).dtype) == str(dtype).removeprefix("torch.")
        finally:
            torch.set_default_dtype(torch.float32)
