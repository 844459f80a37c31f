"""What keeps XLA:CPU from its faults stands in programs for CPUs alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import PartitionSpec as P

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

GUARDS = "reduce_precision", "optimization_barrier"


@pytest.fixture(scope="module")
def pooled():
    """(module, its model, a batch): a sum over rows, then a product of a few rows."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(8, 6)

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = linear

        def forward(self, x):
            return self.linear(x.sum(1))

    return Pooled(), anyjax.from_torch(Pooled()), torch.randn(4, 3, 8)


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_the_platform_that_is_lowered_for_decides(pooled, platform):
    _, model, x = pooled
    traced = jax.jit(model.apply).trace(model.params, x.numpy())
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert [guard in text for guard in GUARDS] == [platform == "cpu"] * 2


def test_one_export_for_several_platforms(pooled):
    module, model, x = pooled
    exported = jax.export.export(jax.jit(model.apply), platforms=("cpu", "cuda"))
    program = jax.export.deserialize(exported(model.params, x.numpy()).serialize(vjp_order=1))
    assert_close(program.call(model.params, x.numpy()), module(x))
    loss = lambda params: (program.call(params, x.numpy()) ** 2).sum()
    want = jax.grad(lambda params: (model.apply(params, x.numpy()) ** 2).sum())(model.params)
    assert_close(jax.grad(loss)(model.params), want)


def test_derivatives_of_any_order_and_vmap(pooled):
    module, model, x = pooled
    value = functools.partial(model.apply, model.params)
    x = x.numpy()
    assert_close(jax.jvp(value, (x,), (x,))[1], module(pooled[2]) - module.linear.bias)
    assert_close(jax.vmap(value)(np.stack([x, 2 * x]))[1], module(2 * pooled[2]))
    twice = jax.hessian(lambda x: (value(x) ** 2).sum())(x)
    weight = model.params["linear.weight"]
    assert_close(twice[0, 0, :, 0, 1], 2 * weight.T @ weight, reduction=64)


@pytest.mark.parametrize("how", ["map", "explicit"])
def test_over_several_devices(pooled, how):
    module, model, x = pooled
    kind = jax.sharding.AxisType.Explicit if how == "explicit" else jax.sharding.AxisType.Auto
    mesh = jax.make_mesh((2,), ("data",), (kind,))
    apply = model.apply
    if how == "map":
        apply = jax.shard_map(apply, mesh=mesh, in_specs=(P(), P("data")), out_specs=P("data"))
    with jax.set_mesh(mesh):
        given = jax.device_put(jnp.asarray(x.numpy()), jax.NamedSharding(mesh, P("data")))
        got = jax.jit(apply)(model.params, given)
        assert got.sharding.spec[0] == "data"
        assert_close(got, module(x))
