import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.test_util import check_grads

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

DRAW = np.random.default_rng(0)


def matrices(kind, n, dtype="float32"):
    """Two symmetric (or Hermitian) matrices that need blocks of one and of two columns."""
    x = DRAW.standard_normal((2, n, n)) + 1j * DRAW.standard_normal((2, n, n))
    x = x if dtype == "complex64" else x.real
    x = x + (x.conj() if kind == "hermitian" else x).mT
    if kind == "hollow":
        x = x * (1 - np.eye(n))
    if kind == "singular":
        x[:, n // 2 :] = x[..., n // 2 :] = 0
    return x.astype(dtype)


CASES = [("plain", 0, "float32"), ("plain", 1, "float32"), ("hollow", 8, "float32")]
CASES += [("plain", 20, "float32"), ("hollow", 7, "complex64"), ("hermitian", 9, "complex64")]


def applied(function, *args):
    return jax.jit(lambda *xs: anyjax.from_torch(function).apply({}, *xs))(*args)


@pytest.mark.parametrize(("kind", "n", "dtype"), [*CASES, ("singular", 6, "float32")])
def test_factors_and_pivots_are_those_of_lapack(kind, n, dtype):
    x = matrices(kind, n, dtype)
    function = lambda a: torch.linalg.ldl_factor_ex(a, hermitian=kind == "hermitian")
    want, got = function(torch.tensor(x)), applied(function, x)
    assert [v.dtype for v in got] == [x.dtype, np.int32, np.int32]
    assert_close(tuple(got[1:]), tuple(want[1:]))
    assert_close(got[0], want[0], reduction=16 * max(n, 1))


@pytest.mark.parametrize(("kind", "n", "dtype"), CASES)
def test_solve(kind, n, dtype):
    x = matrices(kind, n, dtype)
    b = DRAW.standard_normal((2, n, 2)).astype(dtype)

    def function(a, b):
        factors, pivots = torch.linalg.ldl_factor(a, hermitian=kind == "hermitian")
        return torch.linalg.ldl_solve(factors, pivots, b, hermitian=kind == "hermitian")

    want, got = function(torch.tensor(x), torch.tensor(b)), applied(function, x, b)
    condition = max((np.linalg.cond(m) for m in x if n), default=1)
    close = dict(rtol=condition * np.finfo("float32").eps)
    assert_close(got, want, **close)
    more = applied(function, x, np.stack([b, 2 * b, b]))  # torch reads beyond the factors' memory
    assert_close(more[1], 2 * want, **close)


def test_pivots_where_lapack_goes_in_panels():
    x = matrices("plain", 100)
    want, got = torch.linalg.ldl_factor_ex(torch.tensor(x)), applied(torch.linalg.ldl_factor_ex, x)
    assert_close(got[1], want[1])


def test_gradients():
    factor = lambda x: anyjax.from_torch(torch.linalg.ldl_factor_ex).apply({}, x)[0]
    with jax.enable_x64(True):
        check_grads(jax.jit(factor), (jnp.asarray(matrices("hollow", 5)[0], "float64"),), 1)
