"""Training beside torch eager, torchax and hand-written nnx, in turns in one process: ratios.

python benchmarks/train.py [--rounds 15]     # torchax where it can be imported

The model is a Llama of 3.4M, the batch 4 x 128 tokens, the optimizer Adam. ``--batch 16 256`` times
the steps alone, of another size; on one core: OMP_NUM_THREADS=1 taskset -c 0 python ...
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import optax
import torch
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parent))
from adapters import RATE, anyjax_, native_, torch_eager_

import anyjax
from anyjax.train import TrainState, fit, make_step

CURVE = 50


def llama(layers: int = 4, width: int = 256) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": width, "intermediate_size": width * 43 // 16, "vocab_size": 1000}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": layers}
    config = LlamaConfig(**sizes, **heads, max_position_embeddings=256, pad_token_id=0)
    return LlamaForCausalLM(config).train()


def batch(rows: int = 4, length: int = 128, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 1000, (rows, length)).astype(np.int32)


def step_times(rounds: int, rows: int = 4, length: int = 128) -> None:
    module = llama()
    adapters = {"torch": torch_eager_, "nnx": native_, "anyjax": anyjax_}
    if importlib.util.find_spec("torchax"):
        adapters["torchax"] = importlib.import_module("adapters.torchax_")
    steps = {name: adapter.train(copy.deepcopy(module)) for name, adapter in adapters.items()}
    checks, times = {}, {name: [] for name in steps}
    for name, step in steps.items():
        checks[name] = [step(batch(rows, length, i)) for i in range(3)]
    for name in steps:
        assert np.allclose(checks[name], checks["torch"], atol=1e-3), checks
    for i in range(rounds):
        for name, step in steps.items():
            begin = time.perf_counter()
            step(batch(rows, length, i))
            times[name].append(time.perf_counter() - begin)
    for name, seen in times.items():
        middle = statistics.median(seen)
        rate = f"{rows * length / middle:,.0f} tokens per second"
        print(
            f"{name}: {1e3 * min(seen):.1f} ms at best, {1e3 * middle:.1f} ms by the median, {rate}"
        )
    for name in [name for name in steps if name != "anyjax"]:
        pairs = [a / b for a, b in zip(times["anyjax"], times[name])]
        best = min(times["anyjax"]) / min(times[name])
        print(f"anyjax / {name}: {best:.3f} at best, {statistics.median(pairs):.3f} of pairs")


def curves() -> None:
    module = llama(2, 64)
    kinds = {"SGD": (torch.optim.SGD, optax.sgd, 0.1), "Adam": (torch.optim.Adam, optax.adam, RATE)}
    for name, (theirs, ours, rate) in kinds.items():
        one = torch_eager_.train(copy.deepcopy(module), theirs, rate)
        two = anyjax_.train(module, ours(rate))
        pairs = [(one(batch(seed=i)), two(batch(seed=i))) for i in range(CURVE)]
        worst = max(abs(a - b) for a, b in pairs)
        print(f"{name}: curves differ by {worst:.1e} over {CURVE} steps")


def checkpoints() -> None:
    module, tx = llama(), optax.adam(RATE)
    model, step = anyjax.from_torch(module), make_step(anyjax_.causal, tx)
    data = [{"input_ids": batch(seed=i)} for i in range(40)]
    fit(TrainState.create(model, tx), step, data[:2])
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(3):
        for saved in times:
            folder = tempfile.mkdtemp() if saved else None
            state = TrainState.create(model, tx)
            begin = time.perf_counter()
            fit(state, step, data, folder=folder, every=20)
            times[saved].append((time.perf_counter() - begin) / len(data))
    with_, without = min(times[True]), min(times[False])
    extra = 1e3 * (with_ - without)
    print(f"checkpoints every 20 steps: {extra:.1f} ms a step, {with_ / without:.3f} of the time")


def memory() -> None:
    module, tx = llama(24, 64), optax.sgd(0.1)
    state = TrainState.create(anyjax.from_torch(module), tx)
    given = {"input_ids": batch(16, 128)}
    sizes = []
    for remat in (False, True):
        step = make_step(anyjax_.causal, tx, remat=remat)
        compiled = step.program(state).lower(state, given).compile()
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    print(f"24 layers computed again: {sizes[1] / sizes[0]:.2f} of {sizes[0] / 1e6:.0f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--fresh", action="store_true", help="without anyjax.reuse_memory()")
    parser.add_argument("--batch", type=int, nargs=2, metavar=("ROWS", "LENGTH"))
    options = parser.parse_args()
    if not options.fresh:
        anyjax.reuse_memory()  # before any way of them starts
    step_times(options.rounds, *options.batch or ())
    if options.batch:
        raise SystemExit
    curves()
    checkpoints()
    memory()
