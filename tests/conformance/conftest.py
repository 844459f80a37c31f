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


# Of the tests of `anyjax.verify`: what a case that passes is, and what one that fails is not.
VERIFIED = {
    "test_a_fault_is_told": "of {} planted faults {} are told",
    "test_a_healthy_model_is_not_blamed": "of {} healthy models {} are found equal",
}


def verified(terminalreporter):
    """Yields how many planted faults are told, and how many healthy models are not blamed."""
    counts = defaultdict(Counter)
    for status, reports in terminalreporter.stats.items():
        for report in (r for r in reports if getattr(r, "when", None) == "call"):
            name = report.nodeid.rpartition("::")[2].partition("[")[0]
            counts[name][status] += name in VERIFIED
    for name, text in VERIFIED.items():
        count = sum(counts[name][x] for x in ("passed", "failed", "xfailed"))
        if count:
            passed = counts[name]["passed"]
            yield text.format(f"{count:,}", f"{passed:,} ({passed / count:.1%})")


def pytest_terminal_summary(terminalreporter):
    from tests.conformance.op_db import heading, row

    for line in verified(terminalreporter):
        terminalreporter.write_line(line)

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
