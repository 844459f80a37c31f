"""Outcomes of the suites that others wrote, as CSV: what ``pytest --record FILE.csv`` writes.

A row for each operator and mode, with counts and reasons. ``runs.csv`` beside the file says when,
with which versions and by which command each suite ran, and how many of its cases.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest

from proof import records

OUTCOMES = ("passed", "expected", "failed", "skipped")
COLUMNS = ("suite", "name", "mode", *OUTCOMES, "reasons")
RUN_COLUMNS = ("file", "suite", "mode", "cases", "total", *OUTCOMES, "date", "versions", "command")
PACKAGES = ("jax", "torch", "tensorflow-cpu", "keras", "onnx", "onnxruntime", "numpy")
REASON = 160  # letters of a reason at most

# Of each test: its suite, and its mode, or how the case's id gives mode and name.
OF_ID = r"(?P<mode>\w+-\w+(?:-x64)?)-(?P<name>.+)"
TESTS = {
    "test_op_db.py::test_entry": ("torch's operator database", OF_ID),
    "test_module_db.py::test_module": (
        "torch's module database", r"(?P<mode>eval|train)-(?P<name>.+)",
    ),
    "test_tensorflow_set.py::test_case": ("TensorFlow functions", ""),
    "test_keras_set.py::test_as_keras_has_it": ("Keras layers", ""),
    "test_keras_applications.py::test_as_keras_has_it": ("Keras applications", ""),
    "test_stablehlo_set.py::test_function": ("JAX functions by way of jax.export", ""),
    "test_stablehlo_shapes.py::test_unknown_sizes": ("functions of unknown sizes", "value, grad"),
    "test_stablehlo_artifacts.py::test_artifact": ("artifacts of former releases of JAX", "value"),
    "test_onnx_set.py::test_values": ("backend tests of onnx", "value"),
    "test_onnx_set.py::test_gradient": ("backend tests of onnx", "grad, jvp"),
    "test_onnx_set.py::test_a_network": ("backend tests of onnx", "network"),
    "test_onnx_exports.py::test_transformers": ("models exported by torch", "value"),
    "test_onnx_exports.py::test_keras": ("models exported by Keras", "value"),
    "test_onnx_files.py::test_file": ("files in packages", "value, grad"),
}  # fmt: skip


class Case(NamedTuple):
    """A case by its test id; without a mode where the test itself says what became of each."""

    suite: str
    mode: str
    name: str


def case_of(nodeid: str) -> Case | None:
    """Returns the case of a test, nothing for a test that is no case of a suite."""
    path, _, case = nodeid.partition("[")
    if not case or (key := path.rpartition("/")[2]) not in TESTS:
        return None
    suite, mode = TESTS[key]
    name = case.removesuffix("]")
    if mode.startswith("("):
        match = re.fullmatch(mode, name)
        return Case(suite, match["mode"].replace("-", " "), match["name"]) if match else None
    return Case(suite, mode, name)


def modes(found: Mapping[str, str], expected: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Returns (outcome, reason) by mode, for a test that checks all modes of a case.

    Args:
      found: what is wrong, by mode; "" where nothing is.
      expected: the reasons of what is known to fail, by mode.
    """
    outcome = lambda mode, wrong: (
        ("passed", "") if not wrong else
        ("expected", expected[mode]) if mode in expected else ("failed", wrong)
    )  # fmt: skip
    return {mode: outcome(mode, wrong) for mode, wrong in found.items()}


def outcome_of(report: pytest.TestReport) -> tuple[str, str]:
    """Returns (outcome, reason) of a test."""
    if hasattr(report, "wasxfail") and report.skipped:
        return "expected", report.wasxfail.removeprefix("reason: ")
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        return "skipped", str(reason).removeprefix("Skipped: ")
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        return "failed", getattr(crash, "message", "") or "failed"
    return "passed", ""


def totals(nodeids: Iterable[str]) -> list[tuple[str, str, int]]:
    """Returns how many cases there are of each suite and mode."""
    cases = filter(None, map(case_of, nodeids))
    counts = Counter((case.suite, case.mode) for case in cases)
    return [(*key, number) for key, number in counts.items()]


class Recorder:
    """A plugin of the process that collects reports: what a run of the suites found."""

    def __init__(self, path: Path):
        self.path = path
        self.totals: dict[tuple[str, str], int] = {}  # of all cases that there are
        self.cases: Counter[tuple[str, str]] = Counter()  # of those that ran
        self.counts: dict[Case, Counter[str]] = defaultdict(Counter)
        self.reasons: dict[Case, list[str]] = defaultdict(list)

    def add_totals(self, counts: Iterable[tuple[str, str, int]]) -> None:
        """Takes the numbers of all cases: every worker collects the same."""
        self.totals = {(suite, mode): number for suite, mode, number in counts}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node) -> None:
        self.add_totals(getattr(node, "workeroutput", {}).get("totals", ()))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.add(report)

    def pytest_sessionfinish(self) -> None:
        if self.cases:
            self.write()

    def add(self, report: pytest.TestReport) -> None:
        """Adds what became of a test."""
        case = case_of(report.nodeid)
        if case is None or not (report.when == "call" or not report.passed):
            return
        properties = dict(report.user_properties)
        self.cases[case.suite, case.mode] += 1
        case = case._replace(name=properties.get("operator", case.name))
        outcome = outcome_of(report)
        by_mode = properties.get("modes") or {case.mode: outcome}
        for mode, (kind, reason) in by_mode.items():
            row = case._replace(mode=mode)
            self.counts[row][kind] += 1
            short = records.portable(str(reason))[:REASON]
            if short and short not in self.reasons[row]:
                self.reasons[row].append(short)

    def write(self) -> None:
        """Writes the rows of the suites that ran, and the runs; other suites stay as they are, and
        so does a record of more cases than ran, which is said.
        """
        runs = records.read(self.path.with_name("runs.csv"))
        cases = {(x["suite"], x["mode"]): int(x["cases"]) for x in runs}
        for key in [key for key, number in self.cases.items() if number < cases.get(key, 0)]:
            print(
                f"not recorded: {self.cases.pop(key)} cases of {key[0]}, and {self.path.name} has "
                f"{cases[key]}; take its rows out of runs.csv first"
            )
        by_suite = {suite for suite, mode in self.cases if not mode}
        ran = lambda row: row["suite"] in by_suite or (row["suite"], row["mode"]) in self.cases
        rows = [
            {**case._asdict(), **{k: n or "" for k in OUTCOMES for n in [counts[k]]}}
            | {"reasons": " | ".join(self.reasons[case])}
            for case, counts in self.counts.items()
            if ran(case._asdict())
        ]
        key = lambda row: (row["suite"], row["name"], row["mode"])
        replace = lambda old: sorted([*(x for x in old if not ran(x)), *rows], key=key)
        records.update(self.path, COLUMNS, replace)
        records.update(self.path.with_name("runs.csv"), RUN_COLUMNS, self._runs)

    def _runs(self, old: list[records.Row]) -> list[records.Row]:
        runs = {(x["file"], x["suite"], x["mode"]): x for x in old}
        about = {"date": date.today().isoformat(), "versions": records.versions(*PACKAGES)}
        about["command"] = records.command(f"python -m pytest {shlex.join(sys.argv[1:])}")
        for (suite, mode), cases in self.cases.items():
            counts: Counter[str] = Counter()
            for case, numbers in self.counts.items():
                if case.suite == suite and mode in ("", case.mode):
                    counts += numbers
            row = {"file": self.path.name, "suite": suite, "mode": mode, "cases": cases, **about}
            row |= {k: counts[k] for k in OUTCOMES} | {
                "total": self.totals.get((suite, mode), cases)
            }
            runs[self.path.name, suite, mode] = {k: str(row[k]) for k in RUN_COLUMNS}
        return [runs[key] for key in sorted(runs)]
