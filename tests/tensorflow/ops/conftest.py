"""`make test` takes a sample of the operators' cases, `make conformance` all of them."""

import pytest

EVERY = 5


def pytest_collection_modifyitems(items):
    """Of each test function's cases the first and then every fifth are sampled."""
    seen: dict[str, int] = {}
    for item in items:
        if not item.nodeid.startswith("tests/tensorflow/ops/"):
            continue
        name = item.nodeid.partition("[")[0]
        place = seen[name] = seen.get(name, -1) + 1
        if place % EVERY:
            item.add_marker(pytest.mark.conformance)
