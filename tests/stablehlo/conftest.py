"""Fixtures of the tests of StableHLO: compiled programs are freed after each file."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def _free_programs():
    yield
    jax.clear_caches()
