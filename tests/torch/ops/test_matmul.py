"""Products of a few rows, which a CPU computes in parts (elsewhere: the conformance suites)."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import tojax
from tests.tolerance import assert_close
from tojax.torch.ops import matmul


@pytest.fixture(autouse=True)
def one_device_and_four_threads(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    monkeypatch.setattr(matmul, "cores", lambda: 4)


def converted(features: int = 12, bias: bool = True):
    torch.manual_seed(0)
    module = torch.nn.Linear(8, features, bias=bias)
    return module, tojax.from_torch(module)


def products(model, x) -> str:
    return str(jax.make_jaxpr(model.apply)(model.params, x))


@pytest.mark.parametrize("shape", [(2, 8), (32, 8), (4, 8, 8), (2, 1, 3, 8)])
@pytest.mark.parametrize("bias", [True, False])
def test_parts_are_the_whole(shape, bias):
    module, model = converted(bias=bias)
    x = torch.randn(shape, requires_grad=True)
    out = module(x)
    (out**2).sum().backward()
    assert "f32[4,3,8]" in products(model, x.detach().numpy())
    loss = lambda params, x: (model.apply(params, x) ** 2).sum()
    grads, given = jax.grad(loss, (0, 1))(model.params, x.detach().numpy())
    assert_close(model(x.detach().numpy()), out)
    assert_close(given, x.grad)
    assert_close(grads["weight"], module.weight.grad)


def test_vmap_over_inputs_and_over_weights():
    module, model = converted()
    x = torch.randn(5, 3, 8)
    want = module(x)
    assert_close(jax.vmap(model.apply, (None, 0))(model.params, x.numpy()), want)
    stacked = jax.tree.map(lambda p: jnp.stack([p] * 5), model.params)
    assert_close(jax.vmap(model.apply)(stacked, x.numpy()), want)


@pytest.mark.parametrize("shape", [(8,), (1, 8), (33, 8), (0, 8)])
def test_one_product_for_one_row_and_for_many(shape):
    module, model = converted()
    x = torch.randn(shape)
    assert "f32[4,3,8]" not in products(model, x.numpy())
    assert_close(model(x.numpy()), module(x))


def test_one_product_for_what_cannot_be_divided_and_for_other_dtypes():
    _, odd = converted(features=7)
    assert odd(np.ones((4, 8), np.float32)).shape == (4, 7)
    assert "dot_general" in products(odd, np.ones((4, 8), np.float32))
    _, model = converted()
    half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), model.params)
    said = str(jax.make_jaxpr(model.apply)(half, jnp.ones((4, 8), jnp.bfloat16)))
    assert "[4,3,8]" not in said


def test_a_sum_of_rows_goes_into_the_product():
    """Broadcast into the parts it would be NaN: a fusion of jaxlib 0.10."""
    torch.manual_seed(0)
    module = torch.nn.Linear(64, 64, bias=False)
    pooled = type("Pooled", (torch.nn.Module,), {"forward": lambda self, x: module(x.sum(1))})()
    pooled.linear = module
    model = tojax.from_torch(pooled)
    x = torch.randn(32, 2, 64)
    assert_close(jax.jit(model.apply)(model.params, x.numpy()), pooled(x), reduction=128)


def test_parts_are_as_many_as_the_cores_of_this_process(monkeypatch):
    """A container may have 2 of a machine's 64."""
    monkeypatch.undo()
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5}, raising=False)
    assert matmul.cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert matmul.cores() == 64


@pytest.mark.parametrize("axes", [(0, None, 0), (None, 1, None), (None, None, 1), (1, 0, 0)])
def test_grouped_products_under_vmap(axes):
    model = tojax.from_torch(lambda x, weights, ends: torch._grouped_mm(x, weights, offs=ends))
    rng, ends = np.random.default_rng(0), np.array([[2, 6, 7], [1, 1, 7], [7, 7, 7]], np.int32)
    stacks = rng.normal(size=(3, 7, 4)), rng.normal(size=(3, 3, 4, 8)), ends
    loss = lambda rows, weights, ends: (model.apply({}, rows, weights, ends) ** 2).sum()
    value = jax.value_and_grad(loss, (0, 1))
    put = lambda x, axis: jnp.asarray(x[0] if axis is None else np.moveaxis(x, 0, axis))
    got = jax.vmap(value, axes)(*map(put, stacks, axes))
    for i in range(3):
        want = value(*(jnp.asarray(x[0 if a is None else i]) for x, a in zip(stacks, axes)))
        assert_close(jax.tree.map(lambda x, i=i: x[i], got), want, reduction=64)
