"""What a call costs beside its computation: ``model(x)`` and two jitted functions, called in turns.

python benchmarks/calls.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
import transformers
from rich.console import Console
from rich.table import Table

import anyjax


def perceptron() -> tuple[torch.nn.Module, Any]:
    layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    return torch.nn.Sequential(*layers), np.ones((2, 8), np.float32)


class Shifts(torch.nn.Module):
    """Many params and nearly nothing to compute."""

    def __init__(self, count: int = 200):
        super().__init__()
        self.shifts = torch.nn.ParameterList(torch.ones(2) for _ in range(count))

    def forward(self, x):
        return sum(self.shifts, x)


def llama(layers: int = 8) -> tuple[torch.nn.Module, Any]:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
    config = transformers.LlamaConfig(vocab_size=128, num_hidden_layers=layers, **sizes)
    return transformers.LlamaForCausalLM(config).eval(), np.arange(6)[None]


CASES: dict[str, Callable] = {
    "two dense layers": perceptron,
    "200 params": lambda: (Shifts(), np.ones(2, np.float32)),
    "Llama of 8 layers": llama,
}


def microseconds(call: Callable, x: Any) -> float:
    began = time.perf_counter()
    jax.block_until_ready(call(x))
    return 1e6 * (time.perf_counter() - began)


def measured(module: torch.nn.Module, x: Any, repeats: int = 1000) -> dict[str, float]:
    """Medians, the ways taking turns; inputs lie where JAX keeps them."""
    model = anyjax.from_torch(module)
    x, params = jax.device_put(x), model.params
    apply = jax.jit(model.apply)
    ways = {"model(x)": model, "jit(model.apply)": lambda x: apply(params, x)}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 20):
        for name, call in ways.items():
            took = microseconds(call, x)
            if turn >= 20:
                found[name].append(took)
    return {name: statistics.median(took) for name, took in found.items()}


def main() -> None:
    table = Table("model", "params", "model(x), us", "jit(model.apply), us", "ratio")
    for name, make in CASES.items():
        torch.manual_seed(0)
        module, x = make()
        ours, apply = measured(module, x).values()
        count = len([*module.parameters()])
        table.add_row(name, str(count), f"{ours:.1f}", f"{apply:.1f}", f"{ours / apply:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
