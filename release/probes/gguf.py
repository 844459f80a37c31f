"""A file of llama.cpp."""

import sys
from pathlib import Path

import numpy as np

import anyjax

ids = np.array([[1, 5, 7]])
file, folder = Path(sys.argv[1], "tiny.gguf"), Path(sys.argv[1], "tiny-llama")
logits = [anyjax.from_pretrained(source)(ids).logits for source in (file, folder)]
np.testing.assert_allclose(*logits, rtol=1e-4, atol=1e-4)
print("ok: a .gguf file gives what the checkpoint gives")
