"""The page of pipelines of diffusers, written from results/pipelines.csv."""

from __future__ import annotations

from proof import records
from proof.markdown import code, table

RESULTS = records.RESULTS / "pipelines.csv"


def page(written: str) -> str:
    """Returns the page; ``written`` says how it was."""
    rows = records.read(RESULTS)
    head = ["pipeline", "scheduler", "error, 2 steps", "50 steps", "trace, 2 steps", "50 steps",
            "compile, 2 steps", "50 steps", "denoisers"]  # fmt: skip
    cells = ("error 2", "error 50", "trace 2", "trace 50", "compile 2", "compile 50", "denoisers")
    lines = [[row["pipeline"], code(row["scheduler"]), *(row[x] for x in cells)] for row in rows]
    dates = sorted({row["date"] for row in rows})
    return f"""# Pipelines of diffusers

{written}

{len({row["pipeline"] for row in rows})} pipelines of tiny modules with random weights, and Stable
Diffusion with each scheduler: `anyjax.from_diffusers` beside diffusers itself. The error is the
largest difference of any number of the result, by the largest number. Both begin with the same
noise, and what their code draws later is replaced by a wave in both. Times are CPU-seconds of
tracing and of compiling one program on a CPU; neither is to grow with the number of steps, but for
the scheduler's own Python code. The last column has how many calls of the denoiser are in the
program of 50 steps: one in the loop for each call of a step, the others in first and last steps in
which a scheduler computes something else.

{table(head, lines)}

Measured {" to ".join(dict.fromkeys((dates[0], dates[-1])))} with {rows[0]["versions"]}:
`python -m proof.pipelines`.
"""
