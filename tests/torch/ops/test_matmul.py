"""Products of a few rows, turned round on a CPU (elsewhere: the conformance suites)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)


def converted(features: int = 12, bias: bool = True):
    torch.manual_seed(0)
    module = torch.nn.Linear(8, features, bias=bias)
    return module, anyjax.from_torch(module)


def turns(model, x, params=None) -> bool:
    """Whether the product is the transpose of another one."""
    return "kept_on_cpu" in str(jax.make_jaxpr(model.apply)(params or model.params, x))


@pytest.mark.parametrize("shape", [(2, 8), (128, 8), (4, 8, 8), (2, 1, 3, 8)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_few_rows(shape, bias):
    module, model = converted(bias=bias)
    x = torch.randn(shape, requires_grad=True)
    out = module(x)
    (out**2).sum().backward()
    assert turns(model, x.detach().numpy())
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


@pytest.mark.parametrize("shape", [(8,), (1, 8), (129, 8), (0, 8)])
def test_one_row_and_many(shape):
    module, model = converted()
    x = torch.randn(shape)
    assert not turns(model, x.numpy())
    assert_close(model(x.numpy()), module(x))


def test_other_dtypes_and_accelerators(monkeypatch):
    _, model = converted()
    half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), model.params)
    assert not turns(model, jnp.ones((4, 8), jnp.bfloat16), half)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    _, model = converted()
    assert not turns(model, jnp.ones((4, 8)))


def test_a_sum_of_rows_goes_into_the_product():
    """Fusions of sums and products gave NaN with jaxlib 0.10."""
    torch.manual_seed(0)
    module = torch.nn.Linear(64, 64, bias=False)
    pooled = type("Pooled", (torch.nn.Module,), {"forward": lambda self, x: module(x.sum(1))})()
    pooled.linear = module
    model = anyjax.from_torch(pooled)
    x = torch.randn(32, 2, 64)
    assert_close(jax.jit(model.apply)(model.params, x.numpy()), pooled(x), reduction=128)


@pytest.mark.parametrize("axes", [(0, None, 0), (None, 1, None), (None, None, 1), (1, 0, 0)])
def test_grouped_products_under_vmap(axes):
    model = anyjax.from_torch(lambda x, weights, ends: torch._grouped_mm(x, weights, offs=ends))
    rng, ends = np.random.default_rng(0), np.array([[2, 6, 7], [1, 1, 7], [7, 7, 7]], np.int32)
    stacks = rng.normal(size=(3, 7, 4)), rng.normal(size=(3, 3, 4, 8)), ends
    loss = lambda rows, weights, ends: (model.apply({}, rows, weights, ends) ** 2).sum()
    value = jax.value_and_grad(loss, (0, 1))
    put = lambda x, axis: jnp.asarray(x[0] if axis is None else np.moveaxis(x, 0, axis))
    got = jax.vmap(value, axes)(*map(put, stacks, axes))
    for i in range(3):
        want = value(*(jnp.asarray(x[0 if a is None else i]) for x, a in zip(stacks, axes)))
        assert_close(jax.tree.map(lambda x, i=i: x[i], got), want, reduction=64)
