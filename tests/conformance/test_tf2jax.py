"""tf2jax's own test suite, with anyjax.tensorflow in its place."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.expectations import expected_failures

if importlib.util.find_spec("tf2jax") is None:
    pytest.skip("tf2jax is not installed", allow_module_level=True)
from tests.conformance.tf2jax_shim import FOLDER

pytestmark = [pytest.mark.processes, pytest.mark.sample(every=2)]

ROOT = Path(__file__).parents[2]
SAMPLE = ["_src/tf2jax_test.py", "experimental/mhlo_test.py"]
WHOLE = ["_src/ops_test.py", "_src/linalg_ops_test.py", "_src/roundtrip_test.py"]


def outcomes(file: str, folder: Path) -> dict[str, str]:
    """What became of every test of a file."""
    report = folder / "report.xml"
    command = [
        sys.executable, "-m", "pytest", "-q", "-n", "0", "-c", os.devnull, "--rootdir", folder,
        "-p", "tests.conformance.tf2jax_shim", "-p", "no:cacheprovider", f"--junitxml={report}",
        FOLDER / file,
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_NUM_CPU_DEVICES": "1"}
    subprocess.run(command, env=environment, capture_output=True, cwd=folder, check=False)
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        bad = kinds & {"failure", "error"}
        found[case.get("name")] = "failed" if bad else "skipped" if "skipped" in kinds else "passed"
    return found


def assert_expected_outcomes(file: str, folder: Path) -> None:
    found = outcomes(file, folder)
    failed = {name for name, outcome in found.items() if outcome == "failed"}
    expected = {name for name in expected_failures("tf2jax.txt") if name in found}
    assert list(found.values()).count("passed") > 3
    assert failed == expected, {"new": failed - expected, "pass by now": expected - failed}


@pytest.mark.parametrize("file", SAMPLE)
def test_features(file, tmp_path):
    assert_expected_outcomes(file, tmp_path)


@pytest.mark.conformance
@pytest.mark.parametrize("file", WHOLE)
def test_operators_and_round_trips(file, tmp_path):
    assert_expected_outcomes(file, tmp_path)
