"""Costs of small models that do not depend on a clock, as JSON: what test_costs.py holds.

python -m tests.processes.costs > tests/expect/costs.json

By model: equations of the traced program, operations of its StableHLO by kind, compilations of a
conversion, of the first call and of the second, and calls of anyjax's own Python functions during a
trace. Process and seed are fresh, as caches and sets would change the counts. "load" counts the
modules of anyjax that the first from_pretrained of a process imports.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import jax
import numpy as np
import optax
import torch

import anyjax
from anyjax.hf.generation.job.saved_loop_program import loop_of
from anyjax.train import TrainState, make_step
from tests.models import tiny

PACKAGE = str(Path(anyjax.__file__).parent)
PACKAGES = ("jax", "torch", "transformers", "optax", "numpy")
IDS = tiny.ids(8).numpy().astype(np.int32)


class Case(NamedTuple):
    """A call as users make it, and the pure function of arrays that is behind it."""

    call: Callable[[], object]
    function: Callable[..., object]
    arguments: tuple


def forward(module: torch.nn.Module, *args: np.ndarray, roll: bool = False, **options) -> Case:
    model = anyjax.from_torch(module)
    if roll:
        model = anyjax.transforms.roll(model, *args, **options)
    apply = lambda params, *args: model.apply(params, *args, **options)
    return Case(lambda: model(*args, **options), apply, (model.params, *args))


def mlp() -> Case:
    layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    return forward(torch.nn.Sequential(*layers), np.ones((2, 8), np.float32))


def gpt2() -> Case:
    return forward(tiny.gpt2(), IDS, use_cache=False)


def llama() -> Case:
    return forward(tiny.llama(num_hidden_layers=4), IDS, use_cache=False)


def llama_rolled() -> Case:
    return forward(tiny.llama(num_hidden_layers=4), IDS, use_cache=False, roll=True)


def resnet() -> Case:
    module, inputs = tiny.build("resnet")
    return forward(module, inputs["pixel_values"].numpy())


def loss(model, batch):
    logits = model(batch, use_cache=False).logits
    return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], batch[:, 1:]).mean()


def train() -> Case:
    tx = optax.adam(1e-3)
    step = make_step(loss, tx)
    state = TrainState.create(anyjax.from_torch(tiny.llama(num_hidden_layers=1).train()), tx)

    def call() -> None:
        nonlocal state
        state, _ = step(state, IDS)

    copy = jax.tree.map(lambda x: x.copy() if isinstance(x, jax.Array) else x, state)
    # A step that is used already would not be traced a second time.
    function = lambda *args: make_step(loss, tx).program(copy)(*args)
    return Case(call, function, (copy, IDS))


def decode() -> Case:
    """The function is the loop as a saved model has it: generate itself cannot be traced."""
    model = anyjax.from_torch(tiny.llama())
    options = {"max_new_tokens": 8, "eos_token_id": -1}
    loop = loop_of(model, (IDS,), {}, None, options)
    arguments = (model.params, model.state, *loop.arrays)
    return Case(lambda: anyjax.generate(model, IDS, **options), loop.function, arguments)


CASES = (mlp, gpt2, llama, llama_rolled, resnet, train, decode)


def equations(jaxpr: jax.extend.core.Jaxpr) -> int:
    """Number of equations, those of inner programs included."""
    inner = [x for eqn in jaxpr.eqns for x in jax.extend.core.jaxprs_in_params(eqn.params)]
    return len(jaxpr.eqns) + sum(map(equations, inner))


def calls_of(function: Callable[[], object]) -> int:
    """Number of calls of functions in anyjax's files."""
    count = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def costs(make: Callable[[], Case]) -> dict[str, object]:
    """Counts of one case."""
    compiled: list[str] = []

    def listen(event: str, _: float, **__: object) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    case = make()
    numbers = {"compilations of the conversion": len(compiled)}
    for name in ("first", "second"):
        compiled.clear()
        jax.block_until_ready(case.call())
        numbers[f"compilations of the {name} call"] = len(compiled)
    trace = lambda: jax.jit(lambda *args: case.function(*args)).trace(*case.arguments)
    traced = trace()
    numbers["equations"] = equations(traced.jaxpr.jaxpr)
    text = traced.lower().as_text()
    numbers["Python calls of a trace"] = calls_of(trace)
    kinds = Counter(re.findall(r"\b(?:stablehlo|chlo)\.\w+", text))
    return numbers | dict(sorted(kinds.items()))


def load() -> dict[str, int]:
    """Number of anyjax's modules after a checkpoint is loaded, in a process of its own."""
    code = """if True:
        import sys, anyjax
        anyjax.from_pretrained("examples/tiny-llama")
        print(sum(name.partition(".")[0] == "anyjax" for name in sys.modules))
    """
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {"modules of anyjax": int(out.stdout)}


def versions() -> dict[str, str]:
    """Versions that the counts are those of, as constraints.txt writes them."""
    number = lambda name: metadata.version(name).partition("+")[0]
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python} | {name: number(name) for name in PACKAGES}


if __name__ == "__main__":
    figures = {make.__name__: costs(make) for make in CASES} | {"load": load()}
    print(json.dumps({"versions": versions()} | figures, indent=1))
