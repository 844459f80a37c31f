"""How often a loop runs, read from its condition and body; then it is a scan."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anyjax.stablehlo.control_flow.loops import trips, while_loop

pytestmark = pytest.mark.sample(every=8)

I = np.int32


def count(cond, body, *init):
    start = [jnp.asarray(x) for x in init]
    return trips(jax.make_jaxpr(cond)(*start), jax.make_jaxpr(body)(*start), init)


@pytest.mark.parametrize(
    ("cond", "move", "first", "want"),
    [
        (lambda i: i < 5, 1, 0, 5),
        (lambda i: i <= 5, 2, 0, 3),
        (lambda i: i > -5, -2, 0, 3),
        (lambda i: i >= -4, -2, 0, 3),
        (lambda i: i != 6, 2, 0, 3),
        (lambda i: i != 5, 2, 0, None),
        (lambda i: i < 5, 1, 1, 4),
        (lambda i: i < 5, 1, 9, 0),
        (lambda i: i < 5, -1, 0, None),
        (lambda i: (i < 5) & (i < 3), 1, 0, 3),
        (lambda i: (i < 5) | (i < 3), 1, 0, None),
    ],
)
def test_trips(cond, move, first, want):
    assert count(cond, lambda i: [i + I(move)], I(first)) == want
    if want is not None:
        assert int(while_loop(cond, lambda i: [i + I(move)], [I(first)])[0]) == first + want * move


def test_what_is_not_known_is_not_counted():
    assert count(lambda i: i < 5, lambda i: [i * 2], I(1)) is None
    assert count(lambda i: i < 5, lambda i: [i + 1], jnp.int32(0)) is None
    assert count(lambda i, n: i < n, lambda i, n: [i + 1, n], I(0), I(3)) is None


def test_a_counted_loop_is_a_scan():
    run = lambda x: while_loop(lambda i, y: i < 3, lambda i, y: [i + 1, y * x], [I(0), x])[1]
    assert "scan" in str(jax.make_jaxpr(run)(2.0))
    assert float(jax.grad(run)(2.0)) == 32
