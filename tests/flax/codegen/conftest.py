"""What every test of written source needs."""

import logging

import pytest


@pytest.fixture(autouse=True, scope="package")
def quiet():
    """torch.export logs each step; pytest would keep gigabytes of that."""
    log = logging.getLogger("torch.__trace")
    before, log.propagate = log.propagate, False
    yield
    log.propagate = before
