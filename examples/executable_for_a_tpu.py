"""An executable for a TPU, made where none is: python examples/executable_for_a_tpu.py picture.svg

The TPU's compiler runs on a CPU: pip install "anyjax[hf,tpu]"
"""

import json
import sys
import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import torch
from matplotlib import pyplot as plt

import anyjax

torch.manual_seed(0)
layers = [torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)]
model = anyjax.from_torch(torch.nn.Sequential(*layers).bfloat16())
x = jnp.ones((512, 256), "bfloat16")
report = anyjax.parallel.compile_for(model, "v6e-1", "tp", x)
print(f"{report.cycles:,} cycles, {report.traffic:,} bytes read and written")

folder = Path(tempfile.mkdtemp(), "saved")
model.save(folder, x, executables=("v6e-1",))
(entry,) = json.loads((folder / "model.json").read_text())["executables"]
print(f"an executable for {entry['machine']['device']}, by {entry['machine']['plugin']}")
loaded = anyjax.load(folder)  # which compiles the portable program, for this is a CPU
print(f"{abs(np.float32(loaded(x)) - np.float32(model(x))).max():.0e} of difference here")
plt.barh([file.name for file in folder.iterdir()], [f.stat().st_size for f in folder.iterdir()])
plt.xlabel("bytes")
plt.savefig(sys.argv[1] if sys.argv[1:] else "executable_for_a_tpu.svg", bbox_inches="tight")
