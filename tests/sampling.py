"""Which cases `make test` runs: a pytest plugin, which conftest.py loads.

A file or a test says so itself. ``pytest.mark.sample(every=N)`` keeps the first case of each
parametrized test and every Nth after it; `further` marks single cases. `make conformance` runs the
rest, and the end of a run says how many cases it ran of how many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import pytest

CASES = pytest.StashKey[list[int]]()  # how many are to run, and how many there are


def further(*values: Any) -> list[Any]:
    """Returns test parameters that `make conformance` runs and `make test` does not."""
    return [pytest.param(value, marks=pytest.mark.conformance) for value in values]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option for a part of what `make test` runs."""
    parser.addoption(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="of what is no conformance test, the first of each file and every Nth after it",
    )


def smoke_cases(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yields the cases that no mark leaves to `make conformance`."""
    return (item for item in items if not item.get_closest_marker("conformance"))


def leave_out(groups: Iterable[tuple[pytest.Item, Hashable, int]]) -> None:
    """Marks all cases of a group but the first and every Nth after it."""
    places: Counter[Hashable] = Counter()
    for item, group, every in groups:
        if places[group] % every:
            item.add_marker(pytest.mark.conformance)
        places[group] += 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what `make test` leaves out, and what ``--every`` does besides."""
    config.stash[CASES] = [0, len(items)]
    leave_out(
        (item, item.nodeid.partition("[")[0], mark.kwargs["every"])
        for item in smoke_cases(items)
        if (mark := item.get_closest_marker("sample"))
    )
    every = config.getoption("--every")
    leave_out((item, item.path, every) for item in smoke_cases(items))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Counts the cases that are left."""
    if counts := session.config.stash.get(CASES, None):
        counts[0] = len(session.items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands a worker's counts on to the process that prints them."""
    if hasattr(session.config, "workeroutput") and CASES in session.config.stash:
        session.config.workeroutput["cases"] = session.config.stash[CASES]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes a worker's counts: every worker collects the same cases."""
    if counts := getattr(node, "workeroutput", {}).get("cases"):
        node.config.stash[CASES] = counts


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says how many cases were run of how many."""
    selected, count = config.stash.get(CASES, [0, 0])
    if selected < count:
        line = f"{selected:,} of {count:,} cases were to run; `make conformance` runs all of them"
        terminalreporter.write_line(line)
