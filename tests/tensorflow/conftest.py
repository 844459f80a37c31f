"""What the tests of TensorFlow leave behind is freed file by file."""

import warnings

import jax
import pytest

from tojax.errors import StaticArgument


@pytest.fixture(autouse=True)
def _arguments_may_decide_shapes():
    """Sizes and axes that a test passes become static; that this is told, test_origins.py holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StaticArgument)
        yield


@pytest.fixture(autouse=True, scope="module")
def _free_programs():
    yield
    jax.clear_caches()
