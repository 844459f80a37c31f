"""Without extras: a saved model runs, a program of JAX is read, and the command explains itself."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np

import anyjax

saved = Path(sys.argv[1], "saved")
assert not any(map(importlib.util.find_spec, ("torch", "transformers", "tensorflow", "flax")))
x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
np.testing.assert_allclose(anyjax.load(saved)(x), np.load(f"{saved}.npy"), rtol=1e-5, atol=1e-6)
exported = jax.export.export(jax.jit(jax.numpy.sin))(jax.ShapeDtypeStruct((4,), "float32"))
sine = anyjax.from_stablehlo(exported.serialize())
np.testing.assert_allclose(jax.grad(lambda x: sine.apply({}, x).sum())(x[0]), np.cos(x[0]), 1e-5)
command = Path(sys.executable).with_name("anyjax")
for arguments in (["--help"], ["--version"], ["explain", "--list"], ["explain", "MissingOps"], []):
    done = subprocess.run([command, *arguments], capture_output=True, text=True)
    assert "anyjax" in done.stdout and (done.returncode == 0 or not arguments), done
try:
    anyjax.from_pretrained("anything")
except anyjax.errors.MissingDependency as error:
    assert 'pip install "anyjax[hf]"' in str(error)
else:
    raise SystemExit("from_pretrained does not name the extra")
print("ok: load, from_stablehlo, anyjax --help; torch is not asked for")
