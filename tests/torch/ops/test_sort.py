"""Selections of one element, or of the best, where several are equal: which has the gradient."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.torch.beside_torch import assert_same_gradients, assert_same_values, gradients

pytestmark = pytest.mark.sample(every=8)

TIES = np.array([[1, 3, 3, 2, 3], [2, 2, 2, 2, 2], [5, 1, 1, 5, 0], [1, 2, 1, 2, 1]], np.float32)
HOLES = TIES.copy()
HOLES[[0, 1, 2, 2], [0, 2, 0, 1]] = np.nan
SELECTIONS = {
    "median": lambda x: x.median(),
    "median, dim": lambda x: x.median(1).values,
    "nanmedian": lambda x: x.nanmedian(),
    "nanmedian, dim": lambda x: x.nanmedian(1).values,
    "max": lambda x: x.max(),
    "max, dim": lambda x: x.max(1).values,
    "max, rows": lambda x: x.max(0).values,
    "min": lambda x: x.min(),
    "min, dim": lambda x: x.min(1).values,
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin((0, 1)),
    "aminmax": lambda x: tuple(x.aminmax(dim=1)),
    "sort": lambda x: x.sort(dim=1, stable=True).values,
    "sort, descending": lambda x: x.sort(dim=1, stable=True, descending=True).values,
    "cummax": lambda x: x.cummax(1).values,
    "cummin": lambda x: x.cummin(1).values,
    "norm, inf": lambda x: torch.linalg.vector_norm(x, float("inf"), 1),
    "max_pool": lambda x: F.max_pool1d(x, 3, 1, 1),
    "scatter, amax": lambda x: x.scatter_reduce(1, torch.zeros(4, 5).long(), x.flip(1), "amax"),
}
# What torch does not say: which of equal elements is taken.
UNORDERED = {
    "mode": lambda x: x.mode(1).values,
    "quantile": lambda x: x.quantile(0.4, 1),  # the first one until torch 2.13, another in 2.15
    "nanquantile": lambda x: x.nanquantile(0.4, 1),
    "kthvalue": lambda x: x.kthvalue(3, 1).values,
    "topk": lambda x: x.topk(3, 1).values,
    "topk, smallest": lambda x: x.topk(2, 0, largest=False).values,
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_the_gradient_of_equal_elements(name):
    assert_same_gradients(SELECTIONS[name], TIES, reduction=20)


@pytest.mark.parametrize("name", SELECTIONS | UNORDERED)
def test_values_with_nan(name):
    """torch sorts by ``<`` alone for the mode, which NaN upsets."""
    function = (SELECTIONS | UNORDERED)[name]
    for x in (TIES,) if name == "mode" else (TIES, HOLES):
        assert_same_values(function, x)


@pytest.mark.parametrize("name", UNORDERED)
def test_one_of_equal_elements_has_all_of_the_gradient(name):
    got, want = (g[0] for g in gradients(UNORDERED[name], TIES))
    axis = 0 if name == "topk, smallest" else 1
    for value in np.unique(TIES):
        here = lambda g, value=value: np.where(value == TIES, g, 0).sum(axis)
        assert np.allclose(here(got), here(want))


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_nan_is_equal_to_nan(name):
    assert_same_gradients(SELECTIONS[name], HOLES, reduction=20)


QUERIES = np.array([np.nan, -1, 0, -0.0, 1, 1.5, np.inf, -np.inf, 5], np.float32)
SEQUENCES = np.array(
    [[0, 1, 2, np.nan, np.nan], [-np.inf, -0.0, 0, 1, np.inf], [np.nan] * 5, [0, 1, np.nan, 2, 3]],
    np.float32,
)


@pytest.mark.parametrize("right", [False, True])
def test_search_with_nan(right):
    """Also in the middle, where the answer depends on which elements are looked at."""
    rows = np.tile(QUERIES, (len(SEQUENCES), 1))
    assert_same_values(lambda s, v: torch.searchsorted(s, v, right=right), SEQUENCES, rows)
    for row in SEQUENCES:
        assert_same_values(
            lambda s, v: torch.searchsorted(s, v, right=right, out_int32=True), row, rows
        )
        assert_same_values(lambda s, v: torch.bucketize(v, s, right=right), row, rows)
        assert_same_values(lambda s: torch.searchsorted(s, float("nan"), right=right), row)
        assert_same_values(lambda s: torch.bucketize(2, s, right=right), row)


STABLE = {
    "sort": lambda x: tuple(torch.sort(x, stable=True)),
    "sort, descending": lambda x: tuple(torch.sort(x, stable=True, descending=True)),
    "argsort": lambda x: torch.argsort(x, stable=True),
    "argmax": lambda x: (x.argmax(-1), x.argmin(-1)),
    "max": lambda x: tuple(x.max(-1)),
    "cummax": lambda x: tuple(x.cummax(-1)),
    "median": lambda x: x.median(-1).values,
}


@pytest.mark.parametrize("name", STABLE)
def test_zeros_of_either_sign_are_equal(name):
    zeros = np.array([[0, -0.0, 1, -0.0, 0], [-0.0, 0, -1, 0, -0.0], [0, -0.0] * 2 + [0]], "f4")
    assert_same_values(STABLE[name], zeros)
