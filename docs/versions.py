"""The versions that tojax is tested with, as `make compat`, `lowest` and `newest` record them.

python docs/versions.py record REPORT.xml N [TESTS]   counts of a test run, what is installed here
python docs/versions.py table                   the tables of README.md, README.zh.md, versions.md
python docs/versions.py constraints             the file that fits this Python
python docs/versions.py lowest                  the lower bounds of pyproject.toml, for make
python docs/versions.py python                  the newest Python on this machine, from 3.12 on
"""

from __future__ import annotations

import json
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

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs" / "versions.json"
PACKAGES = ("jax", "torch", "transformers", "tensorflow-cpu", "flax", "numpy")
# Folders of tests by what they are about; the first that fits counts.
FEATURES = {
    "generation": ("tests.hf.generation",),
    "Hugging Face": ("tests.hf", "tojax.hf"),
    "StableHLO": ("tests.stablehlo", "tests.conformance.test_stablehlo", "tojax.stablehlo"),
    "ONNX": ("tests.onnx", "tests.conformance.test_onnx", "tojax.onnx"),
    "TensorFlow": (
        "tests.tensorflow",
        "tests.conformance.test_t",
        "tests.conformance.tensorflow",
        "tojax.tensorflow",
    ),
    "PyTorch": ("tests.torch", "tests.conformance", "tojax.torch"),
    "Flax modules and source": ("tests.flax", "tojax.flax"),
    "roll, quantize": ("tests.transforms", "tojax.transforms"),
    "sharding": ("tests.parallel", "tojax.parallel"),
    "training": ("tests.train", "tojax.train"),
    "save and load": ("tests.saved", "tojax.saved"),
    "SavedModel and ONNX": ("tests.export", "tojax.export"),
    "command line": ("tests.cli", "tojax.cli"),
    "the rest": ("",),
}
MARKS = "<!-- versions: written by `make versions` -->", "<!-- end of versions -->"
HEADS = {
    "README.md": ("Python", "passed", "expected to fail", "failed", "on"),
    "README.zh.md": ("Python", "通过", "预期失败", "失败", "日期"),
}


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
    tests = tests.strip()
    entry = {
        "versions": versions,
        "date": date.today().isoformat(),
        "every": every,
        "tests": tests,
        "counts": counts(report),
    }
    records = [x for x in read() if x["versions"] != versions] + [entry]
    records.sort(key=lambda x: [numbers(x["versions"][k]) for k in ("python", *PACKAGES)])
    RECORDS.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    print("recorded", ", ".join(f"{k} {v}" for k, v in versions.items()))


def read() -> list[dict]:
    """Returns what was recorded."""
    return json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else []


def numbers(version: str) -> list[int]:
    """Returns a version as numbers, to sort by."""
    return [int(x) for x in re.findall(r"\d+", version)]


def total(entry: dict, kind: str) -> int:
    """Returns how many tests of a run ended so."""
    return sum(x.get(kind, 0) for x in entry["counts"].values())


def summary(heads: tuple[str, ...]) -> str:
    """Returns one row for each run."""
    python, passed, expected, failed, on = heads
    names = [name.removesuffix("-cpu") for name in PACKAGES]
    part = lambda x: f"`{x['tests']}`" if x["tests"] else ""
    rows = [[python, *names, passed, expected, failed, on, ""]]
    rows += [["---"] * len(rows[0])]
    for entry in read():
        kinds = [str(total(entry, kind)) for kind in ("passed", "expected", "failed")]
        rows += [[*entry["versions"].values(), *kinds, entry["date"], part(entry)]]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def by_feature() -> str:
    """Returns a page with a column for each run and a row for each feature."""
    records = read()
    runs = [*enumerate(records, 1)]
    rows = [["", *(f"run {i}" for i, _ in enumerate(records, 1))]]
    rows += [["---"] * len(rows[0])]
    for name in ("python", *PACKAGES):
        rows += [[name, *(x["versions"][name] for x in records)]]
    for name in FEATURES:
        cells = []
        for entry in records:
            kinds = entry["counts"].get(name, {})
            bad, expected = kinds.get("failed", 0), kinds.get("expected", 0)
            cells += [
                str(kinds.get("passed", "") if entry["tests"] else kinds.get("passed", 0))
                + (f", {expected} expected to fail" if expected else "")
                + (f", **{bad} failed**" if bad else "")
            ]
        rows += [[name, *cells]]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    parts = [f"run {i} is one test in {x['every']} of it" for i, x in runs if x["every"] > 1]
    parts += [f"run {i} is `{x['tests']}` alone" for i, x in runs if x["tests"]]
    return f"""# Versions

Tests that passed with each set of versions, by what they are about. `make compat`, `make lowest`
and `make newest` record a run, `make versions` writes this page and the table of the README. Each
run is `pytest -m "not conformance"`, a sample of all tests{"".join(f"; {x}" for x in parts)}.
What is expected to fail with a version stands in `tests/expect/versions.txt`, other expected
failures beside it.

{table}
"""


def write_tables() -> None:
    """Writes the tables where they stand."""
    start, end = MARKS
    for name, heads in HEADS.items():
        path = ROOT / name
        before, _, rest = path.read_text(encoding="utf-8").partition(start)
        after = rest.partition(end)[2]
        text = f"{before}{start}\n\n{summary(heads)}\n\n{end}{after}"
        path.write_text(text, encoding="utf-8")
    (ROOT / "docs" / "versions.md").write_text(by_feature(), encoding="utf-8")


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
            write_tables()
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
