"""What every test of written source needs."""

import logging

import pytest


@pytest.fixture(autouse=True, scope="package")
def quiet():
    """torch.export logs each step; pytest would keep gigabytes of that."""
    log = logging.getLogger("torch.__trace")
    was_disabled, log.disabled = log.disabled, True
    yield
    log.disabled = was_disabled
