"""torchax's own tests on anyjax, unchanged: ``import torchax`` is served by anyjax.torchax.

python -m proof.torchax_suite FOLDER                     # the folder test of torchax's source
python -m proof.torchax_suite FOLDER --only test_view.py -- -k copy   # what follows -- is pytest's

Each file runs in a process of its own, as its switches stay on. Prints the counts, and each failure
with its reason where it is a known one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from proof.suites import SETTINGS

RUN = """
import sys
import pytest
import anyjax.torchax
anyjax.torchax.install()
sys.exit(pytest.main(sys.argv[1:]))
"""
DEVIATIONS = {
    "test_interpolate": "looks for a helper of torchax's in a program's text",
    "test_requires_grad_full": "torch.full((2, 2), 0) is an integer, which has no gradient",
    "test_basic_sdpa_library": "looks for a softmax in attention, which is one operator here",
    "test.test_tf_integration": "its module is gone from torchax itself",
    "test_can_run_exportable": "torch.export of torch 2.13 refuses the model by itself",
    "test_reference_eager_sparse_mm_reduce_cpu_float32": "sparse tensors have no array",
    "test_reference_eager_sparse_sampled_addmm_cpu_float32": "sparse tensors have no array",
}


def outcomes(root: Path, file: Path, options: Sequence[str]) -> dict[str, str]:
    """Returns the outcome of each test of a file, "passed", "skipped" or "failed"."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.xml"
        arguments = [str(file), f"--junitxml={record}", "-q", "-p", "no:cacheprovider", "-o"]
        arguments += ["addopts=", "-W", "ignore", f"--rootdir={root}", *options]
        environment = {**SETTINGS, **os.environ}
        environment["XLA_FLAGS"] += " --xla_force_host_platform_device_count=8"
        subprocess.run(
            [sys.executable, "-c", RUN, *arguments], env=environment, capture_output=True
        )
        if not record.exists():
            return {file.name: "failed"}
        cases = ElementTree.parse(record).iter("testcase")
        results: dict[str, str] = {}
        for case in cases:  # one for each subtest
            kinds = {child.tag for child in case}
            bad = kinds & {"failure", "error"}
            name = case.attrib["name"].partition(" ")[0]
            outcome = "failed" if bad else "skipped" if "skipped" in kinds else "passed"
            results[name] = "failed" if results.get(name) == "failed" else outcome
        return results


def main(values: Sequence[str] | None = None) -> int:
    """Runs the files; returns the number of failures that are no known ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="torchax's tests")
    parser.add_argument("--only", help="files of these names, with commas")
    parser.add_argument("options", nargs="*", help="of pytest, after --")
    arguments = parser.parse_intermixed_args(values)
    files = sorted(arguments.folder.rglob("test_*.py"))
    if arguments.only:
        files = [x for x in files if x.name in arguments.only.split(",")]
    counts: Counter[str] = Counter()
    failures: list[str] = []
    for file in files:
        results = outcomes(arguments.folder.parent, file.resolve(), arguments.options)
        counts.update(results.values())
        print(file.name, dict(Counter(results.values())), flush=True)
        failures += [name for name, outcome in results.items() if outcome == "failed"]
    print("all", dict(counts))
    for name in failures:
        print(f"  {name}: {DEVIATIONS.get(name, 'not known')}")
    return sum(name not in DEVIATIONS for name in failures)


if __name__ == "__main__":
    sys.exit(main())
