"""Each test compiles anew."""

import pytest
import torch
from torch._dynamo.utils import counters


@pytest.fixture(autouse=True)
def _new_dynamo():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
