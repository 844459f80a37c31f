"""What the tests of TensorFlow leave behind is freed file by file."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def _free_programs():
    yield
    jax.clear_caches()
