"""Branches and loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.stablehlo.agree import assert_agrees

pytestmark = pytest.mark.sample(every=8)

X = np.arange(1, 4, dtype=np.float32)


@pytest.mark.parametrize("index", [-1, 0, 2, 7])
def test_index_that_no_branch_has(index):
    assert_agrees(lambda x, i: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), X, np.int32(index))


def test_carried_constants():
    """A value that the body only reads is no part of the loop."""
    assert_agrees(lambda x: lax.fori_loop(0, 3, lambda i, c: c * x + i, x), X)


def test_data_decides():
    run = lambda x: lax.while_loop(lambda v: v.sum() < 50, lambda v: v * 1.5, x)
    assert_agrees(run, X, grad=False)


def test_gradient_through_a_branch():
    assert_agrees(lambda x: lax.cond(x.sum() > 0, jax.nn.softmax, jnp.sin, x), X)
