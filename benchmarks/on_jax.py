"""torch code on JAX arrays, operator by operator, beside torch eager and torchax: ratios.

python benchmarks/on_jax.py [--rounds 9]     # torchax where it can be imported

All take turns in one process. Operators are on matrices of 8 x 8, where nothing but overhead is
left; a step of training is one of a model whose sizes stand below.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import torch
import torch.nn.functional as F
from torch import nn

import anyjax
from anyjax.torch import interop

OPERATORS: dict[str, Callable[..., Any]] = {
    "x + y": lambda x, y: x + y,
    "x * 2.0": lambda x, y: x * 2.0,
    "x @ y": lambda x, y: x @ y,
    "x.sum()": lambda x, y: x.sum(),
    "x.t()": lambda x, y: x.t(),
    "x.view(64)": lambda x, y: x.view(64),
    "x.add_(y)": lambda x, y: x.add_(y),
    "x[0]": lambda x, y: x[0],
    "x[index]": lambda x, y: x[PLACES[type(x)]],
    "x[0] = 1.0": lambda x, y: x.__setitem__(0, 1.0),
    "F.linear(x, y)": F.linear,
    "softmax": lambda x, y: x.softmax(-1),
    "layer_norm": lambda x, y: F.layer_norm(x, (8,)),
    "dropout": lambda x, y: F.dropout(x),
}
CALLS = 100  # in a row, of an operator
PLACES: dict[type, Any] = {}  # an index, by the class of the tensors beside it


def torchax_here() -> Any:
    """torchax 0.0.13 as it was: it names overloads that torch 2.13 has no more."""
    packet = type(torch.ops.aten.add)
    original = packet.__getattr__

    def lenient(self, name):
        try:
            return original(self, name)
        except AttributeError:
            if "name" not in name:
                raise
            return f"{self}.{name}"

    packet.__getattr__ = lenient
    try:
        import torchax

        torchax.default_env()
    finally:
        packet.__getattr__ = original
    return torchax


def sides() -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Contexts, and what moves tensors and modules there."""
    rival = torchax_here() if importlib.util.find_spec("torchax") else None
    torchax = importlib.import_module("anyjax.torchax")  # behind its rival, which has to be first
    environments = {"anyjax.torchax": torchax} | ({"torchax": rival} if rival else {})
    of_env = lambda env: (lambda: env, env.to_xla)
    return {
        "torch": (contextlib.nullcontext, lambda x: x),
        "anyjax": (anyjax.torch.on_jax, interop.to_jax),
        **{name: of_env(module.default_env()) for name, module in environments.items()},
    }


def trained(context, move, width: int, train: bool) -> Callable[[], Any]:
    """A step of a small network: forward alone, or with gradients and Adam."""
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.GELU())]
    model, x = nn.Sequential(*layers), torch.randn(32, width)
    with context():
        model, x = move(copy.deepcopy(model)), move(x)
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        if not train:
            with torch.no_grad():
                return model(x)
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def ready(out: Any) -> None:
    """Waits for a result."""
    if hasattr(out, "jax"):
        jax.block_until_ready(out.jax())


def timed(context, call: Callable[[], Any], calls: int) -> float:
    """Seconds a call."""
    with context():
        ready(call())
        start = time.perf_counter()
        for _ in range(calls):
            out = call()
        ready(out)
        return (time.perf_counter() - start) / calls


def cases() -> dict[str, tuple[int, dict[str, tuple[Any, Callable[[], Any]]]]]:
    """Calls in a row, and what each side calls."""
    all_cases: dict[str, Any] = {}
    for name, function in OPERATORS.items():
        calls = {}
        for side, (context, move) in sides().items():
            x, y = move(torch.ones(8, 8)), move(torch.ones(8, 8))
            PLACES[type(x)] = move(torch.tensor([1, 5]))
            calls[side] = context, without_gradients(function, x, y)
        all_cases[name] = CALLS, calls
    for width in (64, 512):
        for train in (False, True):
            name = f"{'a step of training' if train else 'forward'}, width {width}"
            step = lambda c, m, width=width, train=train: (c, trained(c, m, width, train))
            all_cases[name] = 5, {side: step(*pair) for side, pair in sides().items()}
    return all_cases


def without_gradients(function, x, y) -> Callable[[], Any]:
    def call():
        with torch.no_grad():
            return function(x, y)

    return call


def ratios(medians: dict[str, float]) -> list[str]:
    """Of anyjax to the sides that are not its own, and of its torchax to torchax."""
    pairs = [("anyjax", "torch"), ("anyjax", "torchax"), ("anyjax.torchax", "torchax")]
    return [f"{medians[a] / medians[b]:8.2f} {a}/{b}" for a, b in pairs if b in medians]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)  # waiting for threads would be what is measured
    for name, (count, calls) in cases().items():
        times: dict[str, list[float]] = {side: [] for side in calls}
        for _ in range(rounds):
            for side, pair in calls.items():
                try:
                    times[side].append(timed(*pair, count))
                except Exception as error:  # one side cannot: the others are measured
                    times[side].append(float("nan"))
                    if len(times[side]) == 1:
                        print(f"{side} cannot {name}: {str(error).splitlines()[0][:80]}")
        medians = {side: statistics.median(x) * 1e6 for side, x in times.items()}
        shown = "".join(f"{side} {x:9.1f} us  " for side, x in medians.items())
        print(f"{name:32}{shown}{''.join(ratios(medians))}", flush=True)


if __name__ == "__main__":
    main()
