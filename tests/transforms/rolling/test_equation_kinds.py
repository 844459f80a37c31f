"""Equations that are the same function, and those that only look so."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.linear_util import wrap_init

from anyjax.transforms.rolling.equation_kinds import Kinds

pytestmark = pytest.mark.sample(every=3)

X = jnp.ones((4, 4))


def numbers(function, *args):
    kinds = Kinds()
    return [kinds(eqn) for eqn in jax.make_jaxpr(function)(*args).eqns]


def custom(scale):
    """A function with a gradient of its own, made anew."""
    function = jax.custom_vjp(lambda x: x * 3)
    function.defvjp(lambda x: (x * 3, None), lambda _, g, scale=scale: (g * scale,))
    return function


@pytest.mark.parametrize(
    "one",
    [
        lambda x: x @ x,
        jax.nn.relu,
        jax.jit(jnp.tanh),
        lambda x: custom(2)(x),
        lambda x: jax.lax.scan(lambda c, y: (c + y, c), x[0], x)[1],
        lambda x: jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x),
        lambda x: jnp.take(x, jnp.array([1, 0]), axis=0),
    ],
)
def test_the_same_twice(one):
    """Made anew by the same lines over the same values."""
    first, again = numbers(one, X), numbers(lambda x: (one(x), one(x)), X)
    assert len(again) == 2 * len(first) and again[: len(first)] == again[len(first) :]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x @ x, lambda x: x @ x.astype(jnp.bfloat16)),
        (lambda x: x[:2], lambda x: x[1:3]),
        (lambda x: jnp.sum(x, 0), lambda x: jnp.sum(x, 1)),
        (custom(2), custom(3)),
        (jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 2)),
        (
            lambda x: jax.lax.scan(lambda c, y: (c + y, c), x[0], x)[1],
            lambda x: jax.lax.scan(lambda c, y: (c - y, c), x[0], x)[1],
        ),
        (
            lambda x: jax.lax.scan(lambda c, y: (c + np.float32(1), c), x[0], x)[1],
            lambda x: jax.lax.scan(lambda c, y: (c + np.float32(2), c), x[0], x)[1],
        ),
    ],
)
def test_others(one, other):
    """Another operand's type, parameter, program inside or rule for the gradient."""
    kinds = Kinds()
    heads = [[kinds(e) for e in jax.make_jaxpr(f)(X).eqns] for f in (one, other)]
    assert heads[0] != heads[1]


def test_values_that_only_look_alike():
    """Zeros of two signs, numbers of eight bits of two kinds, functions deep inside of others."""
    kinds = Kinds()
    assert kinds.form(complex(0.0, -0.0)) != kinds.form(0j)
    eight = [np.zeros(2, kind) for kind in (jnp.float8_e4m3fn, jnp.float8_e4m3b11fnuz)]
    assert kinds.form(eight[0]) != kinds.form(eight[1])
    debug = jax.make_jaxpr(lambda x: x)(1.0).jaxpr.debug_info
    one, other = (wrap_init(f, debug_info=debug) for f in (jnp.sin, jnp.cos))
    for _ in range(40):
        assert kinds.form(one) != kinds.form(other)
        one, other = (functools.partial(map, f) for f in (one, other))


def test_literals_do_not_count():
    """A loop takes them as operands."""
    assert len({*numbers(lambda x: (x * 2.0, x * 3.0), X)}) == 1


def test_effects():
    """What prints is never the same."""

    def loud(x):
        jax.debug.print("{}", x)
        return x

    found = numbers(lambda x: (loud(x), loud(x)), X)
    assert len({*found}) == len(found) == 2
