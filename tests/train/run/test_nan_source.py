import jax
import jax.numpy as jnp
import pytest

from anyjax.train.run.nan_source import first_nonfinite

pytestmark = pytest.mark.sample(every=2)

X = jnp.array([0.5, 2.0])
CASES = {
    "log makes NaN": lambda x: jnp.log(x - 1).sum(),
    "log makes infinity": lambda x: jnp.log(x - 0.5).min(),
    "sub makes NaN": lambda x: (x / 0 - x / 0).sum(),
    "": lambda x: jax.nn.softmax(jnp.where(x > 1, x, -jnp.inf)).sum(),
    "while makes NaN": lambda x: jax.lax.fori_loop(
        0, jnp.int32(x[1]), lambda i, c: c - jnp.inf, x[0] / 0
    ),
    "asin makes NaN in a/b.c": lambda x: scoped(x),
}


@jax.jit
def scoped(x):
    with jax.named_scope("a"), jax.named_scope("b.c"):
        return jax.checkpoint(jnp.arcsin)(x).sum()


@pytest.mark.parametrize("want", CASES)
def test_the_first_operation_is_found(want):
    assert first_nonfinite(CASES[want], X) == want


def test_gradients_are_searched_as_well():
    got = first_nonfinite(jax.grad(lambda x: jnp.sqrt(x - 0.5).sum() * 0), X)
    assert "NaN" in got
