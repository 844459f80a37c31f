"""What `make conformance` prints at its end: a table, one row for each mode and dtype."""

from collections import Counter, defaultdict


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
