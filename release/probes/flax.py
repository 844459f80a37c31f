"""A saved model as a Flax module, without PyTorch."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
from flax import nnx

import anyjax

assert importlib.util.find_spec("torch") is None
model = anyjax.load(Path(sys.argv[1], "saved"))
x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
module = anyjax.flax.to_nnx(model, rngs=nnx.Rngs(0), pretrained=True)
np.testing.assert_allclose(module(x), model(x), rtol=1e-6)
print("ok: to_nnx of a saved model")
