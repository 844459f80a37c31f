"""The scripts in folders that reproduce a fault."""

SCRIPT = "reproduce.py"
OPERATOR = '''\
"""{title}

Written by anyjax.verify; it ends with 3 as long as the two differ by more than rounding.
"""

import sys
from pathlib import Path

import torch
import anyjax
from safetensors.torch import load_file

tensors = load_file(Path(__file__).with_name("tensors.safetensors"))


def operator({names}):
    return {source}


report = anyjax.verify(anyjax.from_torch(operator), *(tensors[name] for name in {keys}))
print(report)
sys.exit(0 if report.ok else 3)
'''
MODULE = '''\
"""{title}

Written by anyjax.verify; it ends with 3 as long as the two differ by more than rounding. The
modules are pickled: open them only if you wrote them.
"""

import sys
from pathlib import Path

import torch
import anyjax

folder = Path(__file__).parent
files = ("converted.pt", "reference.pt", "inputs.pt")
converted, reference, inputs = (torch.load(folder / file, weights_only=False) for file in files)
report = anyjax.verify(
    anyjax.from_torch(converted), *inputs[0], reference=reference, **inputs[1]
)
print(report)
sys.exit(0 if report.ok else 3)
'''
NODE = '''\
"""{title}

Written by anyjax.verify; it ends with 3 as long as the two differ by more than rounding.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import anyjax

folder = Path(__file__).parent
graphs = []
for file in ("converted.pb", "reference.pb"):
    graphs.append(tf.compat.v1.GraphDef.FromString((folder / file).read_bytes()))
inputs = np.load(folder / "inputs.npz")
report = anyjax.verify(anyjax.from_tensorflow(graphs[0]), **inputs, reference=graphs[1])
print(report)
sys.exit(0 if report.ok else 3)
'''
