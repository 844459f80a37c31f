"""One forward pass: compiled once, known values, keys."""

import jax
import numpy as np
import pytest
import torch

import tojax
from tests.flax.wrap.nets import Counting, X, net
from tests.tolerance import assert_close
from tojax.errors import MissingRng
from tojax.flax.wrap.running import run, trains, with_key


def counted(function):
    traces = []

    def forward(*args, **kwargs):
        traces.append(1)
        return function(*args, **kwargs)

    return tojax.from_torch(forward), traces


def test_a_kind_of_call_is_traced_once():
    model, traces = counted(lambda x, scale=1.0: {"y": x * scale, "scale": scale})
    for scale in (2.0, 2.0, 3.0):
        out = run(model, (X,), {"scale": scale}).out
        assert out["scale"] == scale
        assert_close(out["y"], X * np.float32(scale))
    assert len(traces) == 2
    jax.jit(lambda x: run(model, (x,), {}).out["y"])(X)
    assert len(traces) == 3


def test_known_values_decide_shapes():
    model = tojax.from_torch(lambda x, times: torch.cat([x] * int(times[0])))
    assert run(model, (X, np.array([2])), {}).out.shape == (10, 3, 6, 6)
    grads = jax.grad(lambda x: run(model, (x, np.array([2])), {}).out.sum())(X)
    assert_close(grads, np.full_like(X, 2))


def test_what_was_written_and_what_is_missed():
    result = run(tojax.from_torch(Counting()), (2.0,), {})
    assert set(result.written) == set(result.missed) == {"calls", "total"}
    assert set(run(net(), (X,), {}, jax.random.key(0)).written) == set(net().state)


def test_keys_are_asked_for():
    asked = []

    def draw():
        asked.append(1)
        return jax.random.key(0)

    quiet = net().eval()
    with_key(quiet, (X,), {}, trains(quiet), draw, "")
    assert not asked
    with_key(net(), (X,), {}, trains(net()), draw, "")
    noise = tojax.from_torch(lambda x: x + torch.randn(3))
    with_key(noise, (X[0, 0, 0, :3],), {}, False, draw, "")
    assert len(asked) == 2
    with pytest.raises(MissingRng, match="do:    give one"):
        with_key(noise, (X[0, 0, 0, :3],), {}, False, lambda: None, "give one")
