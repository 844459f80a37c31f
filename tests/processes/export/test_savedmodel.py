"""A SavedModel on a full disk."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

FULL = """
import resource, sys, numpy as np, tensorflow, torch, anyjax
from anyjax.errors import NotWritten
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
model = anyjax.from_torch(torch.nn.Linear(300, 200))
try:
    anyjax.export.to_savedmodel(model, sys.argv[1], np.ones((1, 300), "f"))
except NotWritten as error:
    print(error)
"""


@pytest.mark.conformance
def test_a_file_that_the_system_does_not_take(tmp_path):
    """TensorFlow writes by itself, and its errors are none of Python's."""
    command = [sys.executable, "-c", FULL, str(tmp_path / "m")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "cannot be written" in run.stdout and "File too large" in run.stdout, run.stderr
    assert not any(tmp_path.iterdir())
