"""One forward pass: compiled once, known values, keys."""

import jax
import numpy as np
import pytest
import torch
from flax import nnx

import anyjax
from anyjax.errors import DataDependent, MissingRng, StaticArgument
from anyjax.flax import to_linen, to_nnx
from anyjax.flax.wrap.forward import run_forward, run_with_key
from tests.flax.wrap.nets import Counting, X, net
from tests.tolerance import assert_close


def counted(function):
    traces = []

    def forward(*args, **kwargs):
        traces.append(1)
        return function(*args, **kwargs)

    return anyjax.from_torch(forward), traces


def test_a_kind_of_call_is_traced_once():
    model, traces = counted(lambda x, scale=1.0: {"y": x * scale, "scale": scale})
    for scale in (2.0, 2.0, 3.0):
        out = run_forward(model, (X,), {"scale": scale}).out
        assert out["scale"] == scale
        assert_close(out["y"], X * np.float32(scale))
    assert len(traces) == 2
    loss = lambda x: run_forward(model, (x,), {"scale": 2.0}).out["y"].sum()
    assert_close(jax.grad(loss)(X), np.full_like(X, 2))
    assert_close(jax.jit(jax.vmap(loss))(X), 2 * X.sum((1, 2, 3)), reduction=108)
    assert len(traces) <= 3  # vmap shows another shape


def test_known_values_decide_shapes():
    model = anyjax.from_torch(lambda x, times: torch.cat([x] * int(times[0])))
    assert run_forward(model, (X, np.array([2])), {}).out.shape == (10, 3, 6, 6)
    grads = jax.grad(lambda x: run_forward(model, (x, np.array([2])), {}).out.sum())(X)
    assert_close(grads, np.full_like(X, 2))


class Repeating(torch.nn.Module):
    """The values of a buffer decide the shape of the output."""

    def __init__(self):
        super().__init__()
        self.register_buffer("times", torch.tensor(2))

    def forward(self, x):
        return torch.cat([x] * int(self.times))


def test_state_that_decides_shapes_is_static_in_programs():
    module = to_nnx(Repeating())
    assert module(X).shape == (10, 3, 6, 6)
    module.times.set_value(jax.numpy.array(3))
    assert module(X).shape == (15, 3, 6, 6)
    with pytest.warns(StaticArgument, match="times: the values of such state"):
        out = nnx.jit(lambda module, x: module(x))(module, X)
    assert out.shape == (10, 3, 6, 6)
    linen = to_linen(Repeating())
    with pytest.warns(StaticArgument):
        assert jax.jit(linen.apply)(linen.init(jax.random.key(0), X), X).shape == out.shape


class Growing(Repeating):
    def forward(self, x):
        self.times += 1
        return super().forward(x)


def test_state_that_decides_shapes_and_changes_is_an_error_in_programs():
    module = to_nnx(Growing())
    assert [module(X).shape[0] for _ in range(2)] == [15, 20]
    with pytest.raises(DataDependent, match="the state"):
        nnx.jit(lambda module, x: module(x))(module, X)


def test_what_was_written_and_what_is_missed():
    result = run_forward(anyjax.from_torch(Counting()), (2.0,), {})
    assert set(result.written) == set(result.missed) == {"calls", "total"}
    assert set(run_forward(net(), (X,), {}, jax.random.key(0)).written) == set(net().state)


def test_keys_are_asked_for():
    asked = []

    def draw():
        asked.append(1)
        return jax.random.key(0)

    quiet = net().eval()
    run_with_key(quiet, (X,), {}, draw, "")
    assert not asked
    run_with_key(net(), (X,), {}, draw, "")
    noise = anyjax.from_torch(lambda x: x + torch.randn(3)).eval()
    run_with_key(noise, (X[0, 0, 0, :3],), {}, draw, "")
    assert len(asked) == 2
    with pytest.raises(MissingRng, match="do:    give one"):
        run_with_key(noise, (X[0, 0, 0, :3],), {}, lambda: None, "give one")
