"""Figures of arrays, beside numpy's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anyjax.explorer import statistics as module
from anyjax.explorer.statistics import BINS, statistics

RNG = np.random.default_rng(0)
ARRAYS = {
    "normal": RNG.standard_normal((40, 50)).astype(np.float32),
    "bfloat16": jnp.asarray(RNG.standard_normal(999), jnp.bfloat16),
    "integers": RNG.integers(-5, 100, (7, 8, 9)),
    "bools": RNG.integers(0, 2, 100).astype(bool),
    "int4": jnp.asarray(RNG.integers(-8, 8, 100), jnp.int4),
    "odd": np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, -2.0, np.nan]),
    "scalar": np.float32(3.0),
    "strided": RNG.standard_normal((30, 40))[::2, ::-3],
}


@pytest.mark.parametrize("chunk", [64, 1 << 20])
@pytest.mark.parametrize("name", ARRAYS)
def test_figures_are_those_of_numpy(name, chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", chunk)
    x = np.asarray(ARRAYS[name]).astype(np.float64)
    finite = x[np.isfinite(x)]
    figures = statistics(ARRAYS[name])
    assert (figures.minimum, figures.maximum) == (finite.min(), finite.max())
    assert figures.zeros == (x == 0).mean()
    assert (figures.nans, figures.infinities) == (np.isnan(x).sum(), np.isinf(x).sum())
    # sums of the same numbers in another order
    np.testing.assert_allclose(figures.mean, finite.mean(), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(figures.std, finite.std(), rtol=1e-12)
    if finite.min() == finite.max():
        assert figures.counts == (finite.size,)
    else:
        assert figures.counts == tuple(np.histogram(finite, BINS)[0])


@pytest.mark.parametrize("x", [[1.0, np.nextafter(1.0, 2.0)], [-1.7e308, 1.7e308], [0.0, 5e-324]])
def test_histograms_of_numbers_that_are_too_close_or_too_far(x):
    assert statistics(np.array(x)).counts == (2,)


def test_arrays_without_finite_values():
    figures = statistics(np.array([np.nan, np.inf]))
    assert np.isnan([figures.mean, figures.std, figures.minimum, figures.maximum]).all()
    assert (figures.nans, figures.infinities, figures.counts) == (1, 1, ())


def test_what_has_no_figures():
    assert statistics(jax.ShapeDtypeStruct((2,), np.float32)) is None
    assert statistics(jax.random.key(0)) is None
    assert statistics(np.zeros((0, 3))) is None
    assert statistics(np.ones(3, np.complex64)) is None
