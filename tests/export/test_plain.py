"""Jaxprs in operators of jax.lax alone: the same values, and nothing of platforms or calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax
from jax.extend.core import jaxpr_as_fun

import anyjax
from anyjax.export.plain import plain, primitives
from anyjax.stablehlo.control_flow.loops import while_loop
from tests.tolerance import assert_close

X = np.linspace(-1, 1, 32, dtype="f").reshape(1, 4, 8)


def assert_same(function, *args, reduction=1):
    made = plain(function, *args)
    assert_close(jaxpr_as_fun(made)(*args), jax.tree.leaves(function(*args)), reduction=reduction)
    return primitives(made)


def test_calls_and_derivatives_of_ones_own():
    @jax.custom_jvp
    def f(x):
        return jnp.sin(x)

    f.defjvp(lambda x, t: (f(*x), jnp.cos(*x) * t[0]))
    assert assert_same(jax.jit(lambda x: jax.checkpoint(f)(x) + jax.nn.relu(x)), X) == {
        "sin",
        "max",
        "add",
    }


def test_choices_between_platforms():
    conv = torch.nn.Conv1d(4, 4, 3, groups=4)
    model = anyjax.from_torch(torch.nn.Sequential(conv, torch.nn.Linear(6, 6)))
    found = assert_same(lambda x: model.apply(model.params, x), X, reduction=18)
    assert "conv_general_dilated" in found
    assert not found & {"platform_index", "cond", "kept_on_cpu", "jit", "pjit"}


def test_loops_and_branches_are_plain_inside():
    def f(x):
        body = lambda i, c: jax.jit(jnp.sin)(c) + lax.optimization_barrier(c)
        looped = lax.fori_loop(0, 3, body, x)
        return lax.cond(x.max() > 0, jax.jit(jnp.sin), jax.jit(jnp.cos), looped)

    found = assert_same(f, X)
    assert {"cond", "sin", "cos"} <= found and not found & {"jit", "pjit", "optimization_barrier"}


WINDOWS = [
    ((1, 1, 3), (1, 1, 2), "SAME", None),
    ((1, 2, 2), (1, 2, 1), "VALID", None),
    ((1, 1, 3), (1, 1, 1), "VALID", (1, 1, 2)),
]


@pytest.mark.parametrize("window, strides, padding, apart", WINDOWS)
@pytest.mark.parametrize("init, pair", [(-np.inf, lax.max), (0.0, lax.add)], ids=["max", "add"])
def test_windows(window, strides, padding, apart, init, pair):
    pool = lambda x: lax.reduce_window(
        x, np.float32(init), pair, window, strides, padding, window_dilation=apart
    )
    assert not assert_same(pool, X, reduction=4) & {"reduce_window_max", "reduce_window_sum"}


@pytest.mark.parametrize("wide", [(2, 2), (1, 2)])
def test_windows_of_sizes_with_names(wide):
    """A window of one place that moves by two leaves places out."""
    pool = lambda x: lax.reduce_window(
        x, np.float32(-np.inf), lax.max, (1, *wide, 1), (1, 2, 2, 1), "VALID"
    )
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("batch, 4, 4, 3"), np.float32)
    made = plain(pool, spec)
    (eqn,) = (e for e in made.eqns if e.primitive.name == "reduce_window_max")
    assert eqn.params["window_dimensions"] == (1, *wide)
    x = np.random.default_rng(0).standard_normal((2, 4, 4, 3)).astype("f")
    run = jax.export.export(jax.jit(jaxpr_as_fun(made)))(spec)
    np.testing.assert_array_equal(run.call(x)[0], pool(x))


@pytest.mark.parametrize("pair", [lax.max, lax.min, lax.add, lax.mul])
def test_reductions_with_a_first_value(pair):
    f = lambda x: lax.reduce(x, np.float32(0.5), lambda a, b: pair(a, b), (1,))
    assert "reduce" not in assert_same(f, X, reduction=4)


def test_loops_with_a_derivative_are_loops():
    f = lambda x: while_loop(lambda c: c.sum() < 9, lambda c: [jax.jit(jnp.exp)(c)], [x])[0]
    assert "while" in assert_same(f, X) and "reversible_while" in primitives(jax.make_jaxpr(f)(X))
