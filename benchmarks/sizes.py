"""Costs against size, with fitted exponents: a table and plots.

python benchmarks/sizes.py [--rounds 3] [--plot FILE.svg]

Trace and compile against depth, plain and rolled; greedy decoding against the number of new tokens
and of prompts; conversion against parameters. Sizes take turns in one process and the best of the
rounds counts. An exponent is the slope of a line through the logarithms, by least squares: 1 says
that twice the size costs twice as much. Widths are small, so that what is not computation shows.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import numpy as np
import plotting
import roll
import torch
from rich.console import Console
from rich.progress import track
from transformers import LlamaConfig, LlamaForCausalLM

import anyjax

DEPTHS = (8, 16, 32, 64, 96)
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
WIDTHS = (64, 128, 256, 512, 1024, 2048)
NEW = 64  # tokens while the number of prompts grows
Costs = dict[str, float]  # seconds by what they were spent on


def llama(width: int, layers: int = 2) -> LlamaForCausalLM:
    heads = dict(num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=layers)
    sizes = dict(hidden_size=width, intermediate_size=2 * width, vocab_size=512)
    ends = dict(max_position_embeddings=2 * LENGTHS[-1], eos_token_id=None, pad_token_id=0)
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, **ends)).eval()


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def depth(layers: int) -> Costs:
    costs = {}
    for kind in roll.KINDS:
        jax.clear_caches()
        times = roll.measure(layers, 64, kind)
        costs |= {f"trace, {kind}": times["trace"]}
        costs |= {f"compile, {kind}": times["first"] - times["trace"]}
        costs |= {"roll": times["roll"]} if kind == "rolled" else {}
    return costs


def decoding(module: LlamaForCausalLM, tokens: int = NEW, prompts: int = 1) -> Costs:
    model, ids = anyjax.from_torch(module), np.ones((prompts, 16), np.int32)
    call = lambda: anyjax.generate(model, ids, max_new_tokens=tokens)
    first, later = seconds(call), min(seconds(call) for _ in range(3))
    return {"trace and compile": first - later, "decode": later}


def conversion(modules: dict[int, torch.nn.Module], parameters: int) -> Costs:
    gc.collect()
    return {"from_torch": seconds(lambda: anyjax.from_torch(modules[parameters]).params)}


def best(measure: Callable[[int], Costs], sizes: tuple[int, ...], rounds: int) -> dict[int, Costs]:
    """The least seconds of each cost, by size."""
    runs: dict[int, list[Costs]] = {size: [] for size in sizes}
    for size in track([*sizes] * rounds, console=Console(stderr=True)):
        runs[size].append(measure(size))
    return {k: {cost: min(r[cost] for r in v) for cost in v[0]} for k, v in runs.items()}


def fit(results: dict[int, Costs], cost: str) -> tuple[float, float]:
    """Exponent and factor of seconds = factor * size ** exponent."""
    pairs = [(np.log(size), np.log(costs[cost])) for size, costs in results.items()]
    exponent, logarithm = np.polyfit(*zip(*pairs), 1)
    return float(exponent), float(np.exp(logarithm))


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plot", type=Path, default=Path(__file__).parent / "plots" / "sizes.svg")
    options = parser.parse_args()
    torch.manual_seed(0)
    small = llama(64)
    modules = {m.num_parameters(): m for m in (llama(width, 4) for width in WIDTHS)}
    panels = {
        "layers": (depth, DEPTHS),
        "new tokens": (partial(decoding, small), LENGTHS),
        "prompts": (lambda prompts: decoding(small, prompts=prompts), BATCHES),
        "parameters": (partial(conversion, modules), tuple(modules)),
    }
    figure, axes = plotting.pyplot.subplots(2, 2, figsize=(10, 8), layout="constrained")
    print("| against | cost | seconds, smallest | largest | exponent |")
    print("| --- | --- | --- | --- | --- |")
    for axis, (name, (measure, sizes)) in zip(axes.flat, panels.items()):
        results = best(measure, sizes, options.rounds)
        for cost in results[sizes[0]]:
            exponent, factor = fit(results, cost)
            label = f"{cost}: {exponent:.2f}"
            (points,) = axis.plot(sizes, [results[k][cost] for k in sizes], "o", label=label)
            line = [factor * k**exponent for k in sizes]
            axis.plot(sizes, line, color=points.get_color(), linewidth=0.8)
            ends = [f"{results[k][cost]:.3g}" for k in (sizes[0], sizes[-1])]
            span = f"{name}, {sizes[0]:,} to {sizes[-1]:,}"
            print(f"| {span} | {cost} | {' | '.join(ends)} | {exponent:.2f} |", flush=True)
        axis.set(xscale="log", yscale="log", xlabel=name, ylabel="seconds")
        axis.legend()
    plotting.save(figure, options.plot)


if __name__ == "__main__":
    main()
