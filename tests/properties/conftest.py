"""The subject of a test: one model after the other, each built once for all tests in here."""

import jax
import pytest

from tests.properties import subjects


@pytest.fixture(scope="session", params=subjects.ALL)
def subject(request):
    yield subjects.build(request.param)
    jax.clear_caches()
