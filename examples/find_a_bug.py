"""A bug in a rewritten Llama is found by its module: python examples/find_a_bug.py picture.svg"""

import sys

import numpy as np
import torch
from matplotlib import pyplot as plt
from transformers import AutoModelForCausalLM

import anyjax


class Norm(torch.nn.Module):
    """A rewritten norm, which takes the mean of the squares over positions, too."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, x):
        return self.weight * x * torch.rsqrt((x**2).mean((1, 2), keepdim=True) + self.eps)


original = anyjax.from_pretrained("examples/tiny-llama")
rewritten = AutoModelForCausalLM.from_pretrained("examples/tiny-llama").eval()
layer = rewritten.model.layers[1]
layer.post_attention_layernorm = Norm(layer.post_attention_layernorm)
ids = np.arange(5, 37)[None]
report = anyjax.verify(anyjax.from_torch(rewritten), ids, use_cache=False, reference=original)
print(report.verdict)
for label, kind in {"error of the output": "total", "what the module adds": "added"}.items():
    plt.plot([getattr(x, kind).relative for x in report.modules], "o", label=label)
plt.xlabel("modules, in the order of execution")
plt.title(report.faults[0].path)
plt.legend()
plt.savefig(sys.argv[1] if sys.argv[1:] else "find_a_bug.svg")
