"""Fixtures of the tests of TensorFlow: compiled programs are freed after each file."""

import warnings

import jax
import pytest

from anyjax.errors import StaticArgument


@pytest.fixture(autouse=True)
def _arguments_may_decide_shapes():
    """Ignores the warning that sizes and axes become static, which test_origins.py tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StaticArgument)
        yield


@pytest.fixture(autouse=True, scope="module")
def _free_programs():
    yield
    jax.clear_caches()
