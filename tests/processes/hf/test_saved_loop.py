"""Loops of saved models in a process that has no framework."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from tests.hf.generation.test_generate import built
from tests.hf.generation.test_saved_loop import IDS, MASK, SAMPLED

pytestmark = pytest.mark.processes

WITHOUT = """
import sys, numpy as np
sys.modules |= dict.fromkeys(["torch", "transformers", "tensorflow", "keras", "flax"])
import jax, anyjax
greedy, sampled = (anyjax.load(f"{sys.argv[1]}/{name}") for name in ("greedy", "sampled"))
ids, mask = np.load(f"{sys.argv[1]}/ids.npy")
np.save(f"{sys.argv[1]}/greedy.npy", anyjax.generate(greedy, ids, mask))
np.save(f"{sys.argv[1]}/sampled.npy", anyjax.generate(sampled, ids, mask, rng=jax.random.key(3)))
"""


def test_without_any_framework(tmp_path):
    model, greedy = built("llama")[1], dict(max_new_tokens=12, do_sample=False)
    for name, options in (("greedy", greedy), ("sampled", SAMPLED)):
        model.save(tmp_path / name, IDS, attention_mask=MASK, use_cache=False, generate=options)
    np.save(tmp_path / "ids.npy", np.stack([IDS, MASK]))
    subprocess.run([sys.executable, "-c", WITHOUT, str(tmp_path)], check=True, timeout=120)
    want = model.generate(IDS, MASK, **greedy)
    np.testing.assert_array_equal(np.load(tmp_path / "greedy.npy"), want)
    want = model.generate(IDS, MASK, **SAMPLED, rng=jax.random.key(3))
    np.testing.assert_array_equal(np.load(tmp_path / "sampled.npy"), want)
