"""Gradients of what reads a triangle, and of least squares."""

import numpy as np
import pytest
import torch

from tests.tolerance import assert_close
from tests.torch.beside_torch import assert_same_gradients, assert_same_values, gradients

pytestmark = pytest.mark.sample(every=8)

RNG = np.random.default_rng(0)
normal = lambda *shape: RNG.standard_normal(shape).astype(np.float32)
LOW = np.tril(normal(3, 3)) + 3 * np.eye(3, dtype=np.float32)
SQUARE = normal(4, 4) + 4 * np.eye(4, dtype=np.float32)


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_factors(upper):
    """torch gives the other triangle of a factor a gradient, which is not read: here it has 0."""
    factor = LOW.T.copy() if upper else LOW
    triangle = np.triu if upper else np.tril
    for function, arrays in (
        (lambda f: torch.cholesky_inverse(f, upper=upper), (factor,)),
        (lambda f, b: torch.cholesky_solve(b, f, upper=upper), (factor, normal(3, 2))),
    ):
        assert_same_values(function, *arrays, reduction=256)
        got, want = gradients(function, *arrays)
        assert_close(got, [triangle(want[0]), *want[1:]], reduction=1024)
        beside = factor + (LOW if upper else LOW.T) - np.diag(np.diag(LOW))
        assert_same_values(function, beside, *arrays[1:], reduction=256)


@pytest.mark.parametrize("upper", [False, True])
def test_through_the_factorisation(upper):
    def function(a, b):
        factor = torch.linalg.cholesky(a @ a.mT + torch.eye(4), upper=upper)
        inverse = torch.cholesky_inverse(factor, upper=upper)
        return inverse, torch.cholesky_solve(b, factor, upper=upper)

    assert_same_gradients(function, normal(4, 4), normal(4, 2), reduction=4096)


def test_pinv_of_hermitian_matrices():
    """Differentiated like that of any matrix, also where it has no full rank."""
    pinv = lambda a: torch.linalg.pinv(a, hermitian=True, rtol=1e-4)
    Q = np.linalg.qr(normal(4, 4))[0]
    singular = (Q * np.array([3, 1, -2, 0], np.float32)) @ Q.T
    for a in (SQUARE + SQUARE.T, (singular + singular.T) / 2, np.eye(4, dtype=np.float32)):
        assert_same_values(pinv, a, reduction=256)
        assert_same_gradients(pinv, a, reduction=4096)
    assert_same_gradients(lambda a: pinv(a + a.mT), SQUARE, reduction=4096)


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (2, 5, 3)])
def test_lstsq(driver, shape):
    solve = lambda a, b: tuple(torch.linalg.lstsq(a, b, driver=driver)[:2])
    a, b = normal(*shape), normal(*shape[:-1], 2)
    a = SQUARE if shape == (4, 4) else a
    assert_same_values(
        lambda a, b: tuple(torch.linalg.lstsq(a, b, driver=driver)), a, b, reduction=4096
    )
    assert_same_gradients(solve, a, b, reduction=16384)
