"""Greedy decoding with layers one by one and as one loop: anyjax's, and JAX by hand.

    python benchmarks/rolled_decoding.py [--layers 8] [--width 512] [--new 128]

Printed is the processor's time of one call of each, best of several in turns, and its ratio to the
same with layers one by one. XLA:CPU copies a layer's weights out of their stack before it
multiplies them by a vector; what that costs is what the loop by hand shows.
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np
import torch
from adapters import native_
from transformers import LlamaConfig, LlamaForCausalLM

import anyjax


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512, help="features of a layer")
    parser.add_argument("--new", type=int, default=128, help="tokens to write")
    parser.add_argument("--repeat", type=int, default=8)
    given = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    torch.manual_seed(0)
    sizes = dict(hidden_size=given.width, intermediate_size=2752 * given.width // 1024)
    heads = dict(num_attention_heads=8, num_key_value_heads=8, vocab_size=2048)
    ends = dict(eos_token_id=None, pad_token_id=0)
    config = LlamaConfig(num_hidden_layers=given.layers, **sizes, **heads, **ends)
    module = LlamaForCausalLM(config).eval()
    plain = anyjax.from_torch(module)
    prompt = np.arange(1, 9, dtype=np.int32)[None]
    ids, new = torch.from_numpy(prompt).long(), given.new
    rolled = anyjax.transforms.roll(plain, prompt)
    write = lambda model: lambda: np.asarray(anyjax.generate(model, prompt, max_new_tokens=new))
    ways = {
        ("anyjax", "one by one"): write(plain),
        ("anyjax", "loop"): write(rolled),
        ("by hand", "one by one"): native_.generate(module, ids, new),
        ("by hand", "loop"): native_.generate(module, ids, new, loop=True),
    }
    best = dict.fromkeys(ways, float("inf"))
    texts = [way() for way in ways.values()]
    assert all((text == texts[0]).all() for text in texts), "not the same tokens"
    for _ in range(given.repeat):
        for name, way in ways.items():
            start = time.process_time()
            way()
            best[name] = min(best[name], time.process_time() - start)
    for (who, layers), seconds in best.items():
        ratio = seconds / best[who, "one by one"]
        print(f"{who:8} {layers:11} {seconds:7.3f} s of the processor {ratio:5.2f}")
    ratio = best["anyjax", "loop"] / best["by hand", "loop"]
    print(f"loop, anyjax to by hand: {ratio:.2f}")


if __name__ == "__main__":
    main()
