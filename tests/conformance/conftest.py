"""The table that `make conformance` prints at its end, and what ``--record FILE.csv`` writes."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.conformance.record import Recorder, totals


def pytest_addoption(parser):
    parser.addoption(
        "--record", type=Path, metavar="FILE.csv", help="what became of each case, by operator"
    )


def pytest_configure(config):
    path = config.getoption("--record", None)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(path), "recorder")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    counts = totals(item.nodeid for item in items)
    if hasattr(config, "workeroutput"):
        config.workeroutput["totals"] = counts
    elif recorder := config.pluginmanager.get_plugin("recorder"):
        recorder.add_totals(counts)


def pytest_terminal_summary(terminalreporter):
    from tests.conformance.op_db import heading, row

    suites = defaultdict(Counter)
    for reports in terminalreporter.stats.values():
        for report in (r for r in reports if getattr(r, "when", None) == "call"):
            if "status" in (said := dict(report.user_properties)):
                suites[said["suite"]][said["status"]] += 1
    if suites:
        terminalreporter.section("right beside torch, of what torch itself can do")
        terminalreporter.write_line(heading())
    for suite, counts in sorted(suites.items()):
        terminalreporter.write_line(row(counts, suite))
