"""Models on meshes of explicit axes: calls, gradients, state, outside and inside of set_mesh."""

import contextlib

import jax
import numpy as np
import pytest
import torch
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import anyjax
from anyjax.calls import explicit_mesh
from tests.tolerance import assert_close

X = np.random.default_rng(0).standard_normal((4, 8), np.float32)
SPECS = {"0.weight": P("model"), "0.bias": P("model"), "3.weight": P(None, "model")}


def model_and_mesh():
    torch.manual_seed(0)
    first, last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
    layers = first, torch.nn.BatchNorm1d(16), torch.nn.ReLU(), last
    model = anyjax.from_torch(torch.nn.Sequential(*layers).train())
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    put = lambda k, x: jax.device_put(x, NamedSharding(mesh, SPECS.get(k, P())))
    there = model.with_params({k: put(k, x) for k, x in model.params.items()})
    return model, there.with_state({k: put(k, x) for k, x in model.state.items()}), mesh


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("placed", [False, True])
def test_calls(context, placed):
    model, there, mesh = model_and_mesh()
    x = jax.device_put(X, NamedSharding(mesh, P("data"))) if placed else X

    def loss(params, model, x):
        out, state = model.apply(params, x, mutable=True)
        return (out**2).sum(), (out, state)

    run = lambda model, x: jax.jit(jax.grad(lambda p: loss(p, model, x), has_aux=True))(
        model.params
    )
    want = run(model, X)
    with jax.set_mesh(mesh) if context else contextlib.nullcontext():
        grads, (out, state) = run(there, x)
        grads, expected = ({**g, "0.bias": 0} for g in (grads, want[0]))  # 0 but for rounding
        assert_close((grads, (out, state)), (expected, want[1]), reduction=64)
        assert grads["0.weight"].sharding.spec[0] == "model"
        assert out.sharding.spec[0] == ("data" if placed else None)
        assert_close(there.apply(there.params, x, mutable=True)[0], want[1][0], reduction=64)


def test_left():
    """Nothing is copied, and other arrays stay."""
    _, there, _mesh = model_and_mesh()
    other = jax.numpy.ones(3)
    with explicit_mesh.without_explicit_axes((there.params, other)) as (params, same):
        assert same is other
        assert not params["0.weight"].sharding.mesh.explicit_axes
        assert params["0.weight"].sharding.spec == P("model")
        assert jax.jit(lambda w: w @ w.T)(params["0.weight"]).shape == (16, 16)
    with explicit_mesh.without_explicit_axes(other) as same:
        assert same is other
