"""A checkpoint: values, text, and a checkpoint again."""

import sys
from pathlib import Path

import numpy as np
import torch

import anyjax

folder = Path(sys.argv[1], "tiny-llama")
model = anyjax.from_pretrained(folder)
ids = np.array([[1, 5, 7]])
with torch.no_grad():
    expected = model.to_torch()(torch.from_numpy(ids)).logits
np.testing.assert_allclose(model(ids).logits, expected, rtol=1e-3, atol=1e-3)
assert anyjax.generate(model, ids, max_new_tokens=4).shape == (1, 7)
model.save_pretrained("copy")
np.testing.assert_array_equal(anyjax.from_pretrained("copy")(ids).logits, model(ids).logits)
print("ok: from_pretrained, generate, save_pretrained")
