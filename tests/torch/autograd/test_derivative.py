"""Values with a derivative of their own, in both modes, of any order, mapped, in loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anyjax.errors import Unsupported
from anyjax.torch.autograd.derivative import Rules, given, traced
from tests.tolerance import assert_close

X = np.linspace(-1, 2, 4, dtype=np.float32)


def cube(x, factor=3.0, push=None):
    """``x**3`` whose derivative, ``factor * x**2``, reads the input from outside."""
    operands = [x, jax.lax.stop_gradient(x**3)]
    spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
    rule = traced(lambda g: [g * factor * x**2], [spec], operands)
    push = push and traced(lambda t: [push * t], [spec], operands)
    return given(operands, Rules((1, 1), {(True,): rule}, push, "cube"))[0]


def test_of_both_modes_and_any_order():
    total = lambda x: cube(x).sum()
    assert_close(jax.jit(cube)(X), X**3, reduction=3)
    assert_close(jax.jit(jax.grad(total))(X), 3 * X**2, reduction=3)
    assert_close(jax.jvp(cube, (X,), (np.ones_like(X),))[1], 3 * X**2, reduction=3)
    diagonal = np.diag(6 * X)
    for outer in (jax.jacfwd, jax.jacrev):
        for inner in (jax.jacfwd, jax.jacrev):
            assert_close(jax.jit(outer(inner(total)))(X), diagonal, reduction=3)


def test_of_what_is_mapped_and_what_is_not():
    scale = np.float32(2)
    one = lambda x, scale: cube(x * scale)
    slope = lambda scale: jax.vmap(one, (0, None))(X, scale).sum()
    assert_close(jax.grad(slope)(scale), (3 * (X * scale) ** 2 * X).sum(), reduction=12)
    both = jax.vmap(jax.vmap(jax.grad(one), (0, None)), (None, 0))(X, np.ones(2, np.float32))
    assert_close(both, np.stack([3 * X**2] * 2), reduction=3)
    pushed = jax.vmap(lambda x: jax.jvp(cube, (x,), (jnp.ones_like(x),))[1])(X)
    assert_close(pushed, 3 * X**2, reduction=3)


def test_in_loops_and_computed_again():
    step = lambda x, _: (jax.checkpoint(cube)(x), None)
    loss = lambda x: jax.lax.scan(step, x, None, 2)[0].sum()
    assert_close(jax.grad(loss)(X), 9 * X**8, reduction=20)


def test_forward_mode_has_a_rule_of_its_own():
    function = lambda x: cube(x, push=5.0)
    assert_close(jax.jvp(function, (X,), (np.ones_like(X),))[1], np.full_like(X, 5))
    assert_close(jax.grad(lambda x: function(x).sum())(X), 3 * X**2, reduction=3)


def test_of_what_is_not_linear_there_is_no_forward_mode():
    def function(x):
        operands = [x, x * 1]
        spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
        rule = traced(lambda g: [jnp.sign(g)], [spec], operands)
        return given(operands, Rules((1, 1), {(True,): rule}, None, "Sign"))[0]

    with pytest.raises(Unsupported, match="Sign"):
        jax.jvp(function, (X,), (X,))


def test_errors_wait_for_whoever_asks():
    broken = Rules((1, 1), ValueError("of the gradient"), ValueError("of the tangent"), "broken")
    function = lambda x: given([x, x * 2], broken)[0]
    assert_close(jax.vmap(function)(X), 2 * X)
    with pytest.raises(ValueError, match="of the gradient"):
        jax.grad(lambda x: function(x).sum())(X)
    with pytest.raises(ValueError, match="of the tangent"):
        jax.jvp(function, (X,), (X,))


def test_a_rule_for_values_that_nothing_was_computed_from():
    def function(x):
        operands = [x, x * 1, x * 2]
        spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
        back = {
            (True, True): traced(lambda g, h: [g + h], [spec, spec], operands),
            (True, False): traced(lambda g: [7 * g], [spec], operands),
        }
        return given(operands, Rules((1, 2), back, None, "two"))

    for count, slope in ((1, 7), (2, 2)):
        got = jax.jit(jax.grad(lambda x, n=count: sum(function(x)[:n]).sum()))(X)
        assert_close(got, np.full_like(X, slope))
    alone = jax.grad(lambda x: function(x)[1].sum())(X)  # no such rule: zeros for the first
    assert_close(alone, np.ones_like(X))
