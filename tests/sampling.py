"""Which cases `make test` runs: a pytest plugin, which conftest.py loads.

A file or a test says so itself. ``pytest.mark.sample(every=N)`` keeps the first case of each
parametrized test and every Nth after it; `further` marks single cases. `make conformance` runs the
rest, and the end of a run says how many cases it ran of how many.

``--budget S`` gives each file S seconds: of one that takes longer (``tests/expect/seconds.json``) a
part of the cases runs, another one at each commit, so that as many commits see all of them.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

SECONDS = Path(__file__).parent / "expect" / "seconds.json"  # of what no mark leaves out, by file
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
    parser.addoption(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="run as many cases of each file as take these seconds",
    )
    parser.addoption(
        "--offset",
        type=int,
        default=None,
        metavar="N",
        help="which cases --budget runs; by default the commit decides",
    )
    parser.addoption(
        "--record-seconds", action="store_true", help=f"write {SECONDS.name} from this run"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Settles the offset for all workers."""
    if config.option.offset is None:
        config.option.offset = commit() if config.option.budget else 0
    if config.option.record_seconds and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


class Recorder:
    """Adds up the seconds of each file, in the process that prints, and writes them at the end."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a phase of a case."""
        self.seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Writes the files that take a second."""
        rounded = {k: round(v) for k, v in sorted(self.seconds.items()) if v >= 1}
        SECONDS.write_text(json.dumps(rounded, indent=0) + "\n")


def commit() -> int:
    """Returns a number for the files of the commit, 0 outside of a repository."""
    git = ["git", "-C", str(SECONDS.parent), "rev-parse", "HEAD^{tree}"]
    try:
        out = subprocess.run(git, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(out, 16) % 10**6


def fits_budget(
    items: Iterable[pytest.Item], budget: float, offset: int, seconds: dict[str, float]
) -> Iterator[bool]:
    """Yields of each case whether it is in the part of its file that takes ``budget`` seconds."""
    places: Counter[str] = Counter()
    for item in items:
        file = item.nodeid.partition("::")[0]
        every = max(1, math.ceil(seconds.get(file, 0) / budget))
        yield (places[file] + offset) % every == 0
        places[file] += 1


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
    if budget := config.getoption("--budget"):
        offset = config.getoption("--offset")
        smoke, seconds = [*smoke_cases(items)], json.loads(SECONDS.read_text())
        for item, fits in zip(smoke, fits_budget(smoke, budget, offset, seconds)):
            if not fits:
                item.add_marker(pytest.mark.conformance)


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
        if config.getoption("--budget"):
            line += f"; --offset {config.option.offset} runs these again"
        terminalreporter.write_line(line)
