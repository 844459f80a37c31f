"""Operators that XLA's partitioner divides wrongly over devices are right all the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=3)


def divided(arrays, specs, kind):
    mesh = jax.make_mesh((4, 2), ("model", "data"), axis_types=(kind,) * 2)
    return [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip(arrays, specs)]


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("weight", [P("model"), P(None, "model"), P()])
@pytest.mark.parametrize("groups", [2, 8, 16, 64])
def test_convolutions_in_groups(groups, weight, kind):
    """Values and gradients of a convolution whose channels, and whose input's, are divided."""
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(64, 64, 3, groups=groups)
    model = anyjax.from_torch(conv)
    if groups == 64 and weight == P(None, "model"):
        weight = P()  # there is one
    arrays = (
        np.random.default_rng(0).standard_normal((4, 64, 9, 9), np.float32),
        model.params["weight"],
    )

    def loss(x, w):
        out = model.apply({**model.params, "weight": w}, x)
        return jnp.sin(out).sum(), out

    function = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    (_, out), grads = function(*arrays)
    for spec in (P(), P("data", "model"), P("data")):
        (_, got), got_grads = function(*divided(arrays, (spec, weight), kind))
        assert_close(got, out, reduction=64 * 9)
        for a, b in zip(got_grads, grads):
            assert_close(a, b, reduction=4 * 64 * 9, scale=float(abs(b).max()))


def test_a_window_of_many_places():
    conv = torch.nn.Conv1d(8, 8, 301, padding=150, groups=2)
    model = anyjax.from_torch(conv)
    x = np.random.default_rng(0).standard_normal((4, 8, 320), np.float32)
    function = jax.grad(lambda p, x: jnp.sin(model.apply(p, x)).sum(), (0, 1))
    place = lambda x, spec: divided([x], [spec], AxisType.Auto)[0]
    params = {k: place(v, P("model")) for k, v in model.params.items()}
    got = jax.jit(function)(params, place(x, P("data", "model")))
    jax.tree.map(
        lambda a, b: assert_close(a, b, reduction=320 * 4, scale=float(abs(b).max())),
        got,
        jax.jit(function)(model.params, x),
    )


def test_a_group_s_channels_stay_on_their_devices_where_they_may():
    """A depthwise convolution communicates nothing."""
    model = anyjax.from_torch(torch.nn.Conv1d(64, 64, 3, groups=64, bias=False))
    arrays = np.ones((2, 64, 9), np.float32), model.params["weight"]
    arrays = divided(arrays, (P(None, "model"), P("model")), AxisType.Auto)
    program = jax.jit(lambda x, w: model.apply({"weight": w}, x)).lower(*arrays).compile()
    assert "all-" not in program.as_text()


@pytest.mark.parametrize("start, step", [(1, 3), (0, 2), (1, 2), (0, 5)])
def test_slices_of_one_element(start, step):
    def function(x):
        y = x.clone()
        y[:, start::step] = 2 * x[:, start::step]
        return y[:, start::step], y

    model = anyjax.from_torch(function)
    x = np.random.default_rng(0).standard_normal((4, 2), np.float32)
    (there,) = divided([x], [P("model", "data")], AxisType.Auto)
    for got, want in zip(jax.jit(lambda x: model.apply({}, x))(there), model(x)):
        np.testing.assert_array_equal(got, want)
