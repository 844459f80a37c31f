"""A Llama divided over eight devices: python examples/llama_on_eight_devices.py picture.svg"""

import os
import sys

os.environ["JAX_NUM_CPU_DEVICES"] = "8"  # of one CPU; before JAX is imported

import jax
import numpy as np
from matplotlib import pyplot as plt
from transformers import AutoTokenizer

import anyjax

LLAMA = "examples/tiny-llama"
ids = AutoTokenizer.from_pretrained(LLAMA)("def main():", return_tensors="np").input_ids
model = anyjax.from_pretrained(LLAMA)
expected = model(ids).logits
mesh = jax.make_mesh((4, 2), ("data", "model"))
names = ["embed_tokens", "q_proj", "k_proj", "o_proj", "up_proj", "down_proj", "norm"]
_, panels = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
for axes, plan in zip(panels, ("tp", "fsdp", "tp+fsdp")):
    divided = anyjax.from_pretrained(LLAMA, mesh=mesh, plan=plan)  # each device reads its parts
    np.testing.assert_allclose(divided(ids).logits, expected, atol=1e-4)
    held, whole = np.zeros((len(names), 8)), np.zeros((len(names), 1))
    for name, x in divided.params.items():
        row = [n in name for n in names]
        whole[row] += x.nbytes
        for part in x.addressable_shards:
            held[row, part.device.id] += part.data.nbytes
    axes.imshow(held / whole, aspect="auto", vmin=0, vmax=1)
    axes.set(title=plan, xlabel="device", yticks=range(7), yticklabels=names)
    report = anyjax.parallel.explain(model, mesh, plan, ids)
    share = sum(row.per_device for row in report.rows) / sum(row.bytes for row in report.rows)
    traffic = ", ".join(f"{number} x {kind}" for kind, (number, _) in report.traffic.items())
    print(f"{plan}: {share:.0%} of the weights on each device; {traffic}")
plt.savefig(sys.argv[1] if sys.argv[1:] else "llama_on_eight_devices.svg")
