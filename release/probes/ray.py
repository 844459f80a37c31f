"""What batch inference with Ray needs."""

import sys
from pathlib import Path

import numpy as np
import ray.data

import anyjax

model = anyjax.from_pretrained(Path(sys.argv[1], "tiny-llama"))
logits = model(np.array([[1, 5, 7]])).logits
assert np.isfinite(logits).all() and hasattr(ray.data, "read_json")
print("ok: from_pretrained beside ray.data")
