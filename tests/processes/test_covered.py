"""Test files that cover a folder call every module there: tests/expect/house.txt names them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import house
from tests.test_house import covers, mirror

pytestmark = [pytest.mark.processes, pytest.mark.conformance]
ROOT = Path(__file__).parents[2]
# Of the database of operators all values of one dtype, and not what make test samples.
SELECTED = {"tests/conformance/test_op_db.py": ["-k", "extensions or values-float32"]}


def uncalled(folder, suites, report):
    """Returns the modules of the folder without a test file that these tests do not call."""
    selected = SELECTED.get(suites[0], ["-m", "not conformance"])
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "tests.processes.called"]
    run = subprocess.run(
        [*command, "-p", "no:cacheprovider", *selected, *suites],
        cwd=ROOT, capture_output=True, text=True, env=os.environ | {"CALLED": str(report)},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-4000:]
    called = json.loads(report.read_text())
    modules = [path for path in house.untested(*mirror()) if path.startswith(folder)]
    return [path for path in modules if path not in called]


@pytest.mark.parametrize("folder", covers())
def test_every_module_is_called(folder, tmp_path):
    assert uncalled(folder, covers()[folder], tmp_path / "called.json") == []


def test_it_can_fail(tmp_path):
    files = ["tests/torch/ops/test_extensions.py"]
    modules = uncalled("anyjax/torch/ops/", files, tmp_path / "called.json")
    assert "anyjax/torch/ops/vision.py" not in modules and "anyjax/torch/ops/fft.py" in modules
