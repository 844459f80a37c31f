import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from anyjax.numerics import pooling

X = jnp.asarray([[3.0, 1.0, 3.0, np.nan, 2.0, 5.0]], jnp.float32)
WINDOW = {"window_dimensions": (1, 2), "window_strides": (1, 2), "padding": [(0, 0), (0, 0)]}


@pytest.mark.parametrize(("include_pad", "expected"), [(False, [2, 3]), (True, [3, 3])])
def test_counts(include_pad, expected):
    window, strides, pads = (1, 3), (1, 4), [(0, 0), (1, 1)]
    out = lax.reduce_window(jnp.ones((1, 6)), 0.0, lax.add, window, strides, pads)
    counts = pooling.window_counts(jnp.ones((1, 6)), out, window, strides, pads, include_pad)
    assert np.broadcast_to(counts, (1, 2)).tolist() == [expected]
    assert include_pad is (np.ndim(counts) == 0)  # all as many


@pytest.mark.parametrize(("nans", "expected"), [(True, [[0, 3, 5]]), (False, [[0, 2, 5]])])
def test_places_of_maxima(nans, expected):
    assert pooling.max_places(X, 1, WINDOW, nans).tolist() == expected


def test_of_equal_elements_the_first():
    whole = {"window_dimensions": (1, 3), "window_strides": (1, 3), "padding": [(0, 0), (0, 0)]}
    assert pooling.max_places(X[:, :3], 1, whole, nans=True).tolist() == [[0]]


def test_maxima_start_from():
    assert pooling.lowest(np.dtype("float32")) == -np.inf
    assert pooling.lowest(np.dtype("int8")) == -128
