"""Everything in one environment."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np

import anyjax

for part in anyjax._PARTS:
    importlib.import_module(f"anyjax.{part}")
model = anyjax.from_pretrained(Path(sys.argv[1], "tiny-llama"))
assert np.isfinite(model(np.array([[1, 5, 7]])).logits).all()
done = subprocess.run([Path(sys.executable).with_name("anyjax"), "doctor"], capture_output=True)
assert done.returncode == 0, done
print(f"ok: {len(anyjax._PARTS)} parts, a checkpoint, doctor")
