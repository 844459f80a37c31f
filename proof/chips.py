"""Every model type of transformers as a tiny random model, compiled for a TPU v6e and for an H100.

python -m proof.chips                                  # what has no result yet
python -m proof.chips --types llama,t5 --again
python -m proof.chips --targets v6e-1 --dtypes bfloat16

libtpu and JAX's CUDA plugin compile without a chip; `make .compat/compilers/.ready` makes the
environment with both, whose Python runs this. The program computes the sum of the squares of the
outputs and its gradients by all parameters. A row for each type in results/transformers_chips.csv;
a cell is "ok", "ok: what was compiled instead", "n/a: why" or "no: the first line of the error".
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from proof import records, transformers_types
from proof.transformers_types import Worker, pending, save

if TYPE_CHECKING:
    import jax
    import torch

    from proof.tiny_inputs import Tiny

CHIPS = ("v6e", "h100")
LIMITS = {"bfloat16": 120, "float32": 240}  # seconds of the processor's time
CELLS = tuple(f"{chip} {dtype}" for chip in CHIPS for dtype in LIMITS)
COLUMNS = ("type", *CELLS, "seconds", "date", "versions", "command")
PACKAGES = ("jax", "libtpu", "jax-cuda12-plugin", "torch", "transformers")
FILE = "transformers_chips.csv"
WITHOUT_GRADIENTS = "the forward pass alone, torch itself has no gradients"


class Programs:
    """The programs of a tiny model: a call compiles the one of a cell, such as "v6e bfloat16"."""

    def __init__(self, case: Tiny):
        from proof.checks import gradients
        from proof.comparison import NotApplicable

        self.case = case
        self.places: list[int] | None = None  # of the outputs that torch has gradients of
        with contextlib.suppress(NotApplicable):
            self.places = gradients(case.model, case.inputs)[1]

    def __call__(self, name: str) -> str:
        from anyjax.chips.devices import compile_lowered, devices_of, platform_of_device

        chip, dtype = name.split()
        module, inputs = self.case.model, self.case.inputs
        if dtype == "bfloat16":
            module, inputs = narrow(module, inputs)
        device = devices_of(f"{chip}-1")[0]
        traced = trace(module, inputs, self.places, device)
        lowered = traced.lower(lowering_platforms=(platform_of_device(device),))
        compile_lowered(lowered, device)
        return WITHOUT_GRADIENTS if self.places is None else ""


def trace(
    module: torch.nn.Module, inputs: dict, places: Sequence[int] | None, device: jax.Device
) -> jax.stages.Traced:
    """Traces the loss of these outputs and its gradients, or the outputs where there are none.

    Arrays whose values decide shapes are static, as ``model(...)`` makes them: all integers, or all
    inputs.

    Raises:
      NotApplicable: weights decide shapes, or torch does not run the module, either.
    """
    import jax
    import torch

    from anyjax.errors import DataDependent
    from proof.comparison import NotApplicable, first_line

    tensors = {k: v for k, v in inputs.items() if isinstance(v, torch.Tensor)}
    floats = [k for k, v in tensors.items() if v.is_floating_point()]
    place = jax.sharding.SingleDeviceSharding(device)
    shaped = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
    why: Exception | None = None
    for names in ([*tensors], floats, []):
        try:
            function, arguments = program(module, inputs, names, places)
            return jax.jit(function).trace(*jax.tree.map(shaped, arguments))
        except DataDependent as error:
            why = error
        except Exception:  # raised, unless torch does not run the module, either
            check_in_torch(module, inputs)
            raise
    raise NotApplicable(f"weights decide shapes: {first_line(why)}")


def check_in_torch(module: torch.nn.Module, inputs: dict) -> None:
    """Runs the module in torch.

    Raises:
      NotApplicable: with the first line of whatever torch raises.
    """
    from proof.comparison import NotApplicable, first_line
    from proof.tiny_inputs import call

    try:
        call(module, inputs)
    except Exception as error:
        raise NotApplicable(f"torch itself: {first_line(error)}") from error


def program(
    module: torch.nn.Module, inputs: dict, names: Sequence[str], places: Sequence[int] | None
) -> tuple:
    """Returns a function of params, state, a key and the inputs of these names, and all of them."""
    import jax
    import jax.numpy as jnp
    import torch

    import anyjax
    from anyjax import trees
    from proof.checks import floats

    model = anyjax.from_torch(module)
    array = lambda x: model.source.as_array(x) if isinstance(x, torch.Tensor) else x
    arrays = {k: array(v) for k, v in inputs.items()}
    traced = {k: arrays.pop(k) for k in names}
    state = {k: x for k, x in model.state.items() if not trees.is_setting(x)}

    def outputs(params, state, key, traced):
        options = {"state": {**model.state, **state}, "rng": key}
        return floats(model.apply(params, **options, **arrays, **traced))

    def loss(*arguments):
        out = outputs(*arguments)
        return sum(jnp.square(out[i].astype(jnp.float32)).sum() for i in places)

    function = outputs if places is None else jax.value_and_grad(loss)
    return function, (model.params, state, jax.random.key(0), traced)


def narrow(module: torch.nn.Module, inputs: dict) -> tuple[torch.nn.Module, dict]:
    """Returns both in bfloat16, as ``from_pretrained(dtype=torch.bfloat16)`` does: all that a
    checkpoint holds, but what transformers keeps in float32.
    """
    import copy
    import re

    import torch

    module = copy.deepcopy(module)
    stored = module.state_dict().keys()
    wide = "|".join(module._keep_in_fp32_modules_strict or ["$none"])
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        keeps = name not in stored or re.search(rf"(^|\.)({wide})(\.|$)", name)
        if tensor.is_floating_point() and not keeps:
            tensor.data = tensor.data.bfloat16()
    is_float = lambda x: isinstance(x, torch.Tensor) and x.is_floating_point()
    return module, {k: x.bfloat16() if is_float(x) else x for k, x in inputs.items()}


def arguments(values: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--types", help="these, with commas")
    parser.add_argument("--targets", default="v6e-1,h100-1", help="chips, with commas")
    parser.add_argument("--dtypes", default=",".join(LIMITS), help="of weights, one after another")
    parser.add_argument("--again", action="store_true", help="also what has a result")
    parser.add_argument("--out", type=Path, default=records.RESULTS / FILE, help="the CSV file")
    return parser.parse_args(values)


def main(values: Sequence[str] | None = None) -> None:
    """Compiles the programs and writes a row for each type."""
    options = arguments(values)
    for name in ("JAX_PLATFORMS", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, transformers_types.SETTINGS[name])
    from proof.tiny_models import types

    names = options.types.split(",") if options.types else types()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the worker ends, too
    for dtype in options.dtypes.split(","):
        cells = [f"{target.partition('-')[0]} {dtype}" for target in options.targets.split(",")]
        todo = dict.fromkeys(names, cells) if options.again else pending(options.out, names, cells)
        worker = Worker(LIMITS[dtype], Programs)
        atexit.register(worker.stop)
        for model_type, asked in todo.items():
            compile_type(worker, model_type, asked, options.out)
        worker.stop()


def compile_type(worker: Worker, model_type: str, cells: Sequence[str], out: Path) -> None:
    """Writes these cells of a type."""
    begin = time.monotonic()
    results = worker.run(model_type, cells)
    row = {"type": model_type} | {cell: results[cell] for cell in cells}
    row |= {"seconds": f"{time.monotonic() - begin:.0f}", "date": date.today().isoformat()}
    run = records.command(f"python -m proof.chips --types {model_type} --again")
    row |= {"versions": records.versions(*PACKAGES), "command": run}
    save(out, row, columns=COLUMNS)
    bad = {cell: row[cell] for cell in cells if row[cell].startswith("no: ")}
    print(model_type, row["seconds"], bad or "ok", flush=True)


if __name__ == "__main__":
    sys.exit(main())
