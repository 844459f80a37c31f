import numpy as np
import pytest
import scipy.special

from anyjax.numerics import bessel
from tests.tolerance import assert_close

FUNCTIONS = {
    "j0": bessel.bessel_j(0),
    "j1": bessel.bessel_j(1),
    "y0": bessel.bessel_y(0),
    "y1": bessel.bessel_y(1),
    "k0": bessel.bessel_k(0, False),
    "k1": bessel.bessel_k(1, False),
    "k0e": bessel.bessel_k(0, True),
    "k1e": bessel.bessel_k(1, True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_scipy(name):
    x = np.linspace(0.1, 60, 300, dtype=np.float32)
    want = getattr(scipy.special, name)(x.astype(np.float64)).astype(np.float32)
    assert_close(FUNCTIONS[name](x), want, reduction=64)
