"""Saved models in a process that has no framework."""

import subprocess
import sys

import numpy as np
import pytest

import anyjax
from tests.models import tiny
from tests.tolerance import assert_close

pytestmark = pytest.mark.processes

WITHOUT_TORCH = """
import sys, numpy as np
sys.modules |= dict.fromkeys(["torch", "transformers", "tensorflow", "keras"])
import anyjax
model = anyjax.load(sys.argv[1])
out = model(input_ids=np.load(sys.argv[2]), use_cache=False)
np.save(sys.argv[3], out.logits)
"""


def test_runs_without_any_framework(tmp_path):
    module, inputs = tiny.build("llama")
    model, ids = anyjax.from_torch(module), inputs["input_ids"].numpy()
    want = model(input_ids=ids, use_cache=False).logits
    model.save(tmp_path / "saved")
    np.save(tmp_path / "ids.npy", ids)
    arguments = [str(tmp_path / n) for n in ("saved", "ids.npy", "out.npy")]
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *arguments], check=True, timeout=120)
    assert_close(np.load(tmp_path / "out.npy"), want, reduction=64)
