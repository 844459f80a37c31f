"""Q and R from their parts: derivatives of both, of any shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anyjax.stablehlo.ops.linalg import geqrf, householder_product, multiplied, packed
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

RNG = np.random.default_rng(0)


def matrix(*shape, dtype=np.float32):
    x = RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)
    return (x if dtype == np.complex64 else x.real).astype(dtype)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (3, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_plain_algorithms_are_lapacks(shape, dtype):
    a = matrix(*shape, dtype=dtype)
    assert_close(packed(a), geqrf(a), reduction=256)
    if shape[0] >= shape[1]:
        assert_close(multiplied(*geqrf(a)), householder_product(*geqrf(a)), reduction=256)


def test_nothing_to_reflect():
    a = np.diag(np.array([2, -3, 1], np.float32))
    assert_close(packed(a), geqrf(a))


def test_gradient_is_that_of_qr():
    a, w = matrix(2, 5, 3), matrix(2, 5, 3)

    def ours(a):
        q = householder_product(*geqrf(a))
        return jnp.sum(jnp.sin(q) * w)

    theirs = lambda a: jnp.sum(jnp.sin(jnp.linalg.qr(a)[0]) * w)
    assert_close(jax.grad(ours)(a), jax.grad(theirs)(a), reduction=10**4)
