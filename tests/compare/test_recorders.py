"""Calls of submodules, watched in torch, nnx and Linen: each once, by its path, and undone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen, nnx

from anyjax.compare.recorders import flax_calls, torch_calls

X = np.ones((2, 3), np.float32)


class Scaled(nnx.Linear):
    """Calls the method that it inherits, which is no call of its own."""

    def __call__(self, x):
        return super().__call__(x) * 2


class Nnx(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs), Scaled(3, 3, rngs=rngs)])

    def __call__(self, x):
        for layer in (*self.layers, self.layers[0]):
            x = layer(x)
        return x


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(3, name="second")(linen.Dense(3, name="first")(x))


def recorded(module):
    """Returns the paths that are called, and the output."""
    paths = []

    def record(path, call, args, kwargs):
        out = call(*args, **kwargs)
        paths.append(path)
        return out + 1 if path else out

    with flax_calls.watched(module, record):
        return paths, module(jnp.asarray(X))


def test_calls_of_nnx():
    module, kinds = Nnx(), (Nnx, Scaled, nnx.Linear)
    calls = [vars(x)["__call__"] for x in kinds]
    expected = module(jnp.asarray(X))
    paths, out = recorded(module)
    assert paths == [("layers", 0), ("layers", 1), ("layers", 0), ()]
    assert not np.allclose(out, expected)
    assert [vars(x)["__call__"] for x in kinds] == calls
    np.testing.assert_array_equal(module(jnp.asarray(X)), expected)


def test_calls_of_linen():
    variables = Linen().init(jax.random.key(0), X)
    paths, out = recorded(Linen().bind(variables))
    assert paths == [("first",), ("second",), ()]
    assert not np.allclose(out, Linen().apply(variables, X))


def test_what_is_undone_where_a_call_fails():
    class Fails(Nnx):
        def __call__(self, x):
            raise KeyError("no")

    call = vars(nnx.Linear)["__call__"]
    with pytest.raises(KeyError):
        recorded(Fails())
    assert vars(nnx.Linear)["__call__"] is call


@pytest.mark.parametrize("replaces", [False, True])
def test_calls_of_torch(replaces):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    x, calls = torch.from_numpy(X), []
    enter = lambda path, args, kwargs: ((args[0] * 0,), kwargs)
    leave = lambda path, args, kwargs, out: calls.append((path, args[0].sum().item())) or out + 1
    expected = module(x)
    with torch_calls.watched(torch_calls.submodules(module), enter, leave, replaces=replaces):
        out = module(x)
    assert [path for path, _ in calls] == ["0", "1"]
    assert torch.equal(out, expected) is not replaces
    assert torch.equal(module(x), expected)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


def test_a_call_of_torch_that_fails_is_left():
    module, calls = torch.nn.Sequential(torch.nn.Linear(3, 3)), []
    leave = lambda path, args, kwargs, out: calls.append((path, out))
    with (
        pytest.raises(RuntimeError),
        torch_calls.watched(torch_calls.submodules(module), leave=leave),
    ):
        module(torch.ones(2, 4))
    assert calls == [("0", None)]


def test_a_models_own_hooks_see_what_its_code_gave():
    """Also those that are added in a call, as transformers collects hidden states."""
    collected = []

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.ReLU()

        def forward(self, x):
            hook = lambda module, args, out: collected.append(out)
            handle = self.inner.register_forward_hook(hook)
            try:
                return self.inner(x) + 0
            finally:
                handle.remove()

    module, seen = Outer(), []
    leave = lambda name, args, kwargs, out: seen.append(out) or out + 10
    with torch_calls.watched(torch_calls.submodules(module), leave=leave, replaces=True):
        out = module(torch.ones(2))
    assert out.tolist() == [11, 11] and collected[0].tolist() == seen[0].tolist() == [1, 1]
    assert not module.inner._forward_hooks and not module.inner._forward_pre_hooks
