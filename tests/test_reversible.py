"""Loops of unknown length: both derivatives, vmap, and each under the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anyjax.reversible import SLOTS, while_loop

pytestmark = pytest.mark.sample(every=8)

X = jnp.array([1.0, 2.0])
W = jnp.array([1.01, 1.02])


def looped(x, w, bound=100.0):
    """Grown until the sum is above the bound."""
    return while_loop(
        lambda k, y: jnp.sum(y) < bound, lambda k, y: [k + 1, step(y, w)], [jnp.int32(0), x]
    )[1]


def step(y, w):
    return y * w + jnp.sin(y) ** 2 + 0.1


def unrolled(x, w, bound=100.0):
    y, count = x, 0
    while float(jnp.sum(jax.lax.stop_gradient(y))) < bound:
        y, count = step(y, w), count + 1
    return y


def turns(x, w, bound=100.0):
    y, count = np.asarray(x), 0
    while y.sum() < bound:
        y, count = np.asarray(step(y, w)), count + 1
    return count


def fixed(count):
    """The same number of turns, for derivatives of the reference."""

    def function(x, w):
        for _ in range(count):
            x = step(x, w)
        return x

    return function


@pytest.mark.parametrize("bound", [2.0, 9.0, 40.0, 1e4])
def test_derivatives(bound):
    """In 64 bits: rounding to 32 grows by 3 % of a derivative in 292 turns."""
    with jax.enable_x64(True):
        x, w = (jnp.asarray(np.asarray(v, np.float64)) for v in (X, W))
        call, want = lambda x, w: looped(x, w, bound), fixed(turns(x, w, bound))
        close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7)
        close(call(x, w), want(x, w))
        close(jax.jvp(call, (x, w), (w, x))[1], jax.jvp(want, (x, w), (w, x))[1])
        sums = lambda f: jax.jit(jax.grad(lambda x, w: f(x, w).sum(), (0, 1)))(x, w)
        for mine, theirs in zip(sums(call), sums(want)):
            close(mine, theirs)


def test_more_turns_than_slots_were_taken():
    assert turns(X, W, 1e4) > 2 * SLOTS


def test_under_vmap():
    xs = jnp.array([[1.0, 2.0], [0.1, 0.2], [3.0, 4.0]])
    function = lambda x: looped(x, W, 20.0)
    each = [fixed(turns(x, W, 20.0)) for x in xs]
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3)
    close(jax.vmap(function)(xs), [f(x, W) for f, x in zip(each, xs)])
    want = [jax.grad(lambda x, f=f: f(x, W).sum())(x) for f, x in zip(each, xs)]
    close(jax.vmap(jax.grad(lambda x: function(x).sum()))(xs), want)
    close(jax.grad(lambda xs: jax.vmap(function)(xs).sum())(xs), want)
    close(jax.vmap(jax.jacfwd(function))(xs), jax.vmap(jax.jacrev(function))(xs))


def test_second_derivatives():
    loss = lambda f: lambda x: (f(x, W) ** 2).sum()
    mine, scanned = loss(lambda x, w: looped(x, w, 20.0)), loss(fixed(turns(X, W, 20.0)))
    want = jax.hessian(scanned)(X)
    for hessian in (jax.hessian(mine)(X), jax.jacrev(jax.jacrev(mine))(X)):
        np.testing.assert_allclose(hessian, want, rtol=2e-3, atol=1e-3)
