"""The versions that anyjax is tested with, as `make compat`, `lowest` and `newest` record them.

python -m proof.versions record REPORT.xml N [TESTS]   counts of a test run, what is installed here
python -m proof.versions table          docs/proof/versions.md
python -m proof.versions constraints    the file that fits this Python
python -m proof.versions lowest         the lower bounds of pyproject.toml, for make
python -m proof.versions python         the newest Python on this machine, from 3.12 on
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from datetime import date
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

from proof import records
from proof.records import ROOT, Row

RECORDS = records.RESULTS / "versions.csv"
PAGE = ROOT / "docs" / "proof" / "versions.md"
PACKAGES = ("jax", "torch", "transformers", "tensorflow-cpu", "flax", "numpy")
NAMES = ("python", *PACKAGES)
KINDS = ("passed", "expected", "failed", "skipped")
# A row for each run and feature.
COLUMNS = ("date", *NAMES, "every", "tests", "feature", *KINDS)
# Folders of tests by what they are about; the first that fits counts.
FEATURES = {
    "generation": ("tests.hf.generation",),
    "Hugging Face": ("tests.hf", "anyjax.hf"),
    "StableHLO": ("tests.stablehlo", "tests.conformance.test_stablehlo", "anyjax.stablehlo"),
    "ONNX": ("tests.onnx", "tests.conformance.test_onnx", "anyjax.onnx"),
    "TensorFlow": (
        "tests.tensorflow",
        "tests.conformance.test_t",
        "tests.conformance.tensorflow",
        "anyjax.tensorflow",
    ),
    "PyTorch": ("tests.torch", "tests.conformance", "anyjax.torch"),
    "Flax modules and source": ("tests.flax", "anyjax.flax"),
    "roll, quantize": ("tests.transforms", "anyjax.transforms"),
    "sharding": ("tests.parallel", "anyjax.parallel"),
    "training": ("tests.train", "anyjax.train"),
    "save and load": ("tests.saved", "anyjax.saved"),
    "SavedModel and ONNX": ("tests.export", "anyjax.export"),
    "command line": ("tests.cli", "anyjax.cli"),
    "the rest": ("",),
}
HEAD = ("Python", "passed", "expected to fail", "failed", "on")


def feature_of(test: str) -> str:
    """Returns what a test is about, by the dotted name of its module."""
    test = test.replace("tests.processes.", "tests.", 1)
    return next(k for k, starts in FEATURES.items() if test.startswith(starts))


def counts(report: Path) -> dict[str, dict[str, int]]:
    """Returns (passed, expected, failed, skipped) of a JUnit report, by feature."""
    totals: dict[str, Counter[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        tags = {child.tag: child for child in case}
        if "failure" in tags or "error" in tags:
            kind = "failed"
        elif "skipped" in tags:
            expected = tags["skipped"].get("type") == "pytest.xfail"
            kind = "expected" if expected else "skipped"
        else:
            kind = "passed"
        totals.setdefault(feature_of(case.get("classname", "")), Counter())[kind] += 1
    return {k: dict(totals[k]) for k in FEATURES if k in totals}


def record(report: Path, every: int = 1, tests: str = "") -> None:
    """Adds a run of the tests by this Python to the records, in the place of an earlier one."""
    versions = {"python": platform.python_version()}
    versions |= {name: metadata.version(name).partition("+")[0] for name in PACKAGES}
    run = {"date": date.today().isoformat(), **versions}
    run |= {"every": str(every), "tests": tests.strip()}
    rows = [x for x in records.read(RECORDS) if any(x[k] != v for k, v in versions.items())]
    for feature, kinds in counts(report).items():
        rows.append(run | {"feature": feature} | {k: str(kinds.get(k, 0)) for k in KINDS})
    rows.sort(key=lambda x: [numbers(x[k]) for k in NAMES])
    records.write(RECORDS, COLUMNS, rows)
    print("recorded", ", ".join(f"{k} {v}" for k, v in versions.items()))


def runs() -> list[list[Row]]:
    """Returns the rows of each run."""
    by_versions: dict[tuple[str, ...], list[Row]] = {}
    for row in records.read(RECORDS):
        by_versions.setdefault(tuple(row[k] for k in NAMES), []).append(row)
    return [*by_versions.values()]


def numbers(version: str) -> list[int]:
    """Returns a version as numbers, to sort by."""
    return [int(x) for x in re.findall(r"\d+", version)]


def summary() -> str:
    """Returns one row for each run."""
    python, *kinds, on = HEAD
    part = lambda row: f"`{row['tests']}`" if row["tests"] else ""
    names = [name.removesuffix("-cpu") for name in PACKAGES]
    lines = [[python, *names, *kinds, on, ""]]
    lines += [["---"] * len(lines[0])]
    for rows in runs():
        totals = [str(sum(int(x[kind]) for x in rows)) for kind in KINDS[:3]]
        lines += [[*(rows[0][k] for k in NAMES), *totals, rows[0]["date"], part(rows[0])]]
    return table(lines)


def table(lines: list[list[str]]) -> str:
    """Returns lines of cells as Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def by_feature() -> str:
    """Returns a page with a column for each run and a row for each feature."""
    firsts = [rows[0] for rows in runs()]
    numbered = [*enumerate(firsts, 1)]
    lines = [["", *(f"run {i}" for i, _ in numbered)], ["---"] * (len(firsts) + 1)]
    lines += [[name, *(x[name] for x in firsts)] for name in ("date", *NAMES)]
    for name in FEATURES:
        features = [{x["feature"]: x for x in rows} for rows in runs()]
        lines += [[name, *(_cell(x.get(name)) for x in features)]]
    parts = [f"run {i} is one test in {x['every']} of it" for i, x in numbered if x["every"] != "1"]
    parts += [f"run {i} is `{x['tests']}` alone" for i, x in numbered if x["tests"]]
    return f"""# Versions

<!-- written by `make versions` from proof/results/versions.csv -->

Tests that passed with each set of versions, by what they are about. `make compat`, `make lowest`
and `make newest` record a run, `make versions` writes this page. Each run is
`pytest -m "not conformance"`, a sample of all tests{"".join(f"; {x}" for x in parts)}.
What is expected to fail with a version stands in `tests/expect/versions.txt`, other expected
failures beside it. An empty cell is a feature that the run has no test of.

jaxlib 0.10.2 and 0.11.0 have a fault that can end a process on a CPU; anyjax goes around it, see
[seven dimensions on a CPU](../guides/sharp-bits.md#seven-dimensions-on-a-cpu).

{summary()}

By what the tests are about:

{table(lines)}
"""


def _cell(row: Row | None) -> str:
    """Returns what became of the tests of a feature."""
    if row is None:
        return ""
    parts = [row["passed"]]
    parts += [f"{row['expected']} expected to fail"] * (row["expected"] != "0")
    parts += [f"**{row['failed']} failed**"] * (row["failed"] != "0")
    return ", ".join(parts)


def constraints() -> str:
    """Returns the name of the constraints file that fits this Python."""
    return "constraints.txt" if sys.version_info < (3, 12) else "constraints-3.12.txt"


def lowest() -> str:
    """Returns the lower bounds that pyproject.toml has for all features, as make's variables.

    transformers is pinned by constraints.txt: not all features are there at its lower bound.
    """
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    bound = lambda name: re.search(rf'"{name}>=([\d.]+)"', text)
    found = {name: bound(name) for name in ("torch", "jax")}
    pad = lambda version: ".".join([*version.split("."), "0", "0"][:3])
    return " ".join(f"{k.upper()}={pad(m[1])}" for k, m in found.items() if m)


def newest_python() -> str:
    """Returns the newest Python from 3.12 on that runs on this machine, or nothing."""
    minors = range(20, 11, -1)
    places = [shutil.which(f"python3.{minor}") for minor in minors]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places += [str(path / "bin" / "python") for path in pyenv.glob("3.*")]
    versions = {}
    for place in filter(None, places):
        run = subprocess.run([place, "-c", "import platform; print(platform.python_version())"],
                             capture_output=True, text=True, check=False)  # fmt: skip
        if not run.returncode and numbers(run.stdout) >= [3, 12]:
            versions[place] = numbers(run.stdout)
    return max(versions, key=lambda place: versions[place], default="")


def main(command: str = "", *rest: str) -> None:
    """Runs one of the commands above."""
    match command:
        case "record":
            record(Path(rest[0]), int(rest[1]), " ".join(rest[2:]))
        case "table":
            PAGE.write_text(by_feature(), encoding="utf-8")
        case "constraints":
            print(constraints())
        case "lowest":
            print(lowest())
        case "python":
            print(newest_python())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
