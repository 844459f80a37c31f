"""Repeated layers as one loop: first calls and later calls of a model of many narrow layers.

    python benchmarks/roll.py [--layers 8 96] [--width 128]

Printed are ratios; times are of this machine. Each model of each depth is built and called in a
process of its own, so that nothing was traced or compiled before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import numpy as np

KINDS = ("plain", "rolled")


def measure(depth: int, width: int, kind: str) -> dict[str, float]:
    """Seconds of one model: rolling, tracing, compiling, running."""
    import jax
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import anyjax

    torch.manual_seed(0)
    sizes = dict(hidden_size=width, intermediate_size=2 * width, num_hidden_layers=depth)
    heads = dict(num_attention_heads=4, num_key_value_heads=4, vocab_size=512)
    module = LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval()
    ids = np.arange(512, dtype=np.int32).reshape(4, 128)
    model = anyjax.from_torch(module)
    start = time.perf_counter()
    if kind == "rolled":
        model = anyjax.transforms.roll(model, ids, use_cache=False)
    rolling = time.perf_counter() - start
    function = jax.jit(lambda params, ids: model.apply(params, ids, use_cache=False).logits)
    start = time.perf_counter()
    lowered = function.trace(model.params, ids)
    trace = time.perf_counter() - start
    compiled = lowered.lower().compile()
    whole = time.perf_counter() - start
    runs = []
    for _ in range(7):
        start = time.perf_counter()
        jax.block_until_ready(compiled(model.params, ids))
        runs.append(time.perf_counter() - start)
    return {
        "roll": rolling,
        "trace": trace,
        "first": whole,
        "run": min(runs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs=2, default=[8, 96], help="two depths")
    parser.add_argument("--width", type=int, default=128, help="features of a layer")
    parser.add_argument("--repeat", type=int, default=3, help="processes of each kind")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(int(given.one[0]), given.width, given.one[1])))
        return
    kinds = [(depth, kind) for depth in given.layers for kind in KINDS]
    found: dict[tuple[int, str], list[dict[str, float]]] = {k: [] for k in kinds}
    for _ in range(given.repeat):
        for depth, kind in kinds:
            line = [
                sys.executable,
                __file__,
                "--width",
                str(given.width),
                "--one",
                str(depth),
                kind,
            ]
            out = subprocess.run(line, check=True, capture_output=True, text=True).stdout
            found[depth, kind].append(json.loads(out.splitlines()[-1]))
    best = {k: {name: min(x[name] for x in v) for name in v[0]} for k, v in found.items()}
    names = [*best[kinds[0]]]
    print(f"{'layers':>6} {'':7}" + "".join(f"{name:>14}" for name in names) + "  seconds, best")
    for (depth, kind), times in best.items():
        print(f"{depth:>6} {kind:7}" + "".join(f"{times[name]:>14.3f}" for name in names))
    few, many = given.layers
    for kind in KINDS:
        a, b = (best[depth, kind] for depth in given.layers)
        print(f"trace, {many} layers to {few}, {kind}: {b['trace'] / a['trace']:.2f}")
        print(f"trace and compile, {many} layers to {few}, {kind}: {b['first'] / a['first']:.2f}")
        whole = (b["roll"] + b["first"]) / (a["roll"] + a["first"])
        print(f"the same with the time that roll takes, {kind}: {whole:.2f}")
    for depth in given.layers:
        ratio = best[depth, "rolled"]["run"] / best[depth, "plain"]["run"]
        print(f"run of {depth} layers, rolled to plain: {ratio:.2f}")


if __name__ == "__main__":
    main()
