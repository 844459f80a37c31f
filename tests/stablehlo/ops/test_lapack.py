"""Calls of LAPACK, with the gradients that JAX gives its own functions."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.stablehlo.agree import assert_agrees

pytestmark = pytest.mark.sample(every=8)

A = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
CASES = {
    "getrf": lambda x: lax.linalg.lu(x),
    "potrf": lambda x: jnp.linalg.cholesky(x @ x.T + 4 * jnp.eye(4)),
    "syevd": lambda x: jnp.linalg.eigvalsh(x @ x.T),
    "gesdd": lambda x: jnp.linalg.svd(x, compute_uv=False),
    "trsm": lambda x: lax.linalg.triangular_solve(x, x, lower=True, left_side=False),
}


@pytest.mark.parametrize("name", CASES)
def test_routines(name):
    assert_agrees(CASES[name], A, depth=10**4)
