"""Pipelines of diffusers as one program each, beside diffusers itself.

python -m proof.pipelines                        # those that have no row yet
python -m proof.pipelines --only Flux,Wan --again

A row for each pipeline, and for Stable Diffusion with each scheduler, in results/pipelines.csv: the
largest difference from diffusers after 2 and 50 steps, by the largest number, and the CPU-seconds
that tracing and compiling take. Both sides begin with the same noise, and what they draw later is
a fixed wave.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from datetime import date
from typing import Any

import numpy as np

from proof import records

STEPS = (2, 50)
MEASURES = [f"{what} {steps}" for what in ("error", "trace", "compile") for steps in STEPS]
COLUMNS = ("pipeline", "scheduler", *MEASURES, "denoisers", "date", "versions", "command")
RESULTS = records.RESULTS / "pipelines.csv"


def waves() -> None:
    """Replaces the noise that code of diffusers draws by a wave."""
    import torch

    def wave(shape: Any, *args: object, dtype: Any = None, **kwargs: object) -> torch.Tensor:
        return torch.cos(torch.arange(float(np.prod(shape)))).reshape(tuple(shape)).to(dtype)

    for name, module in [*sys.modules.items()]:
        if name.startswith("diffusers.") and "randn_tensor" in vars(module):
            vars(module)["randn_tensor"] = wave


def measured(pipeline: Any, options: dict[str, Any]) -> dict[str, object]:
    """Returns the measures of one pipeline."""
    import jax
    import torch

    import anyjax

    ours = anyjax.from_diffusers(pipeline)
    row: dict[str, object] = {"scheduler": type(pipeline.scheduler).__name__}
    for steps in STEPS:
        call = options | {"num_inference_steps": steps, "output_type": "pt"}
        want = np.asarray(torch.as_tensor(pipeline(**call)[0]))
        inputs = ours.inputs(**call)
        arrays = {k: x.numpy() for k, x in inputs.items() if isinstance(x, torch.Tensor)}
        constants = {k: x for k, x in inputs.items() if k not in arrays}
        run = lambda params, arrays, constants=constants: jax.tree.leaves(
            ours.model.apply(params, **arrays, **constants)
        )[0]
        began = time.process_time()
        lowered = jax.jit(run).lower(ours.params, arrays)
        traced = time.process_time()
        compiled = lowered.compile()
        row[f"trace {steps}"] = f"{traced - began:.1f}"
        row[f"compile {steps}"] = f"{time.process_time() - traced:.1f}"
        got = np.asarray(compiled(ours.params, arrays)).reshape(want.shape)
        row[f"error {steps}"] = f"{np.abs(got - want).max() / np.abs(want).max():.1e}"
        row["denoisers"] = denoisers(lowered.as_text())
    return row


def denoisers(text: str) -> int:
    """Counts the calls of the denoiser in a program."""
    names = ("unet", "transformer")
    return sum(text.count(f"call @{name}(") for name in names)


def cases() -> dict[tuple[str, str], tuple[Any, dict[str, Any]]]:
    """Returns (how a pipeline is made, options of its call) by pipeline and scheduler."""
    from functools import partial

    from tests.diffusers.cases import CASES, FLOWS, SCHEDULERS, scheduler

    table: dict[tuple[str, str], tuple[Any, dict[str, Any]]] = {
        (name, ""): (case.make, case.options) for name, case in CASES.items()
    }
    for pipeline, schedulers in (("StableDiffusion", SCHEDULERS), ("StableDiffusion3", FLOWS)):
        for name in schedulers:
            make = lambda name, pipeline: CASES[pipeline].make(scheduler(name))
            table[pipeline, name] = (
                partial(make, name, pipeline), CASES[pipeline].options
            )  # fmt: skip
    return table


def main(arguments: list[str] | None = None) -> None:
    """Measures the cases and writes their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of pipelines or schedulers")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    only = {x for x in options.only.split(",") if x}
    done = {(row["pipeline"], row["scheduler"]) for row in records.read(RESULTS)}
    for (pipeline, scheduler), (make, call) in cases().items():
        if only and not only & {pipeline, scheduler}:
            continue
        made = make()
        key = pipeline, type(made.scheduler).__name__
        if key in done and not options.again:
            continue
        waves()
        try:
            row = measured(made, call)
        except Exception as error:
            row = {"scheduler": key[1], "error 2": f"no: {records.portable(str(error))[:300]}"}
        row |= {"pipeline": pipeline, "date": date.today().isoformat()}
        row["versions"] = records.versions("diffusers", "jax", "torch", "transformers")
        row["command"] = records.command(f"python -m proof.pipelines --only {pipeline} --again")
        print(*(f"{k}={row.get(k, '')}" for k in COLUMNS[:-3]), flush=True)
        records.update(RESULTS, COLUMNS, lambda rows, row=row: _with(rows, row))


def _with(rows: list[records.Row], row: dict[str, Any]) -> list[Any]:
    is_other = lambda x: (x["pipeline"], x["scheduler"]) != (row["pipeline"], row["scheduler"])
    return sorted(
        [*filter(is_other, rows), row], key=lambda x: (x["pipeline"].lower(), x["scheduler"])
    )


if __name__ == "__main__":
    main()
