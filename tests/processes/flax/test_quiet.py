"""torch.export's own prints, of which the error says all."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

REFUSED = """
import torch, anyjax
class Decides(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x[x > 0]
try:
    anyjax.flax.source(Decides(), torch.ones(3))
except anyjax.errors.Unsupported as error:
    print(error.what)
"""


def test_a_module_that_is_refused():
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True)
    assert done.stdout == "torch.export refuses Decides\n"
    assert "def forward" not in done.stderr and "user code" not in done.stderr, done.stderr
