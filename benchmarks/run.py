"""tojax beside torch eager, torchax and hand-written JAX: ratios from one interleaved run.

python benchmarks/run.py                                  # all cases, whatever is installed
python benchmarks/run.py --cases gpt2 --rounds 5
python benchmarks/run.py --torchax path/to/venv/bin/python   # an environment in which torchax
imports

Every (case, adapter) pair runs in a process of its own; within a round the adapters take turns, so
that a noisy machine hits all of them alike. The table shows medians and the ratio of tojax to each;
absolute times on a shared machine mean little. A row counts only if the checksums of all adapters
agree.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

HERE = Path(__file__).resolve().parent
ADAPTERS = ["tojax", "native", "torch_eager", "torchax"]
CASES = {
    "gpt2": "GPT-2 124M, batch 1, 128 tokens: first_s is conversion plus first call",
    "decode_small": "greedy, 64 tokens after 16, Llama of 3.4 M parameters",
    "decode_small_8": "the same, 8 prompts at once",
    "decode": "the same, one prompt, Llama of 246 M parameters",
    "decode_8": "the same, 8 prompts at once",
    "decode_wide": "the same, one prompt, two layers as wide as those of Llama 7B",
    "demo": "tojax run on the demo checkpoint: seconds from process start to the first token",
}
AGREE = 1e-3


def worker(case: str, adapter: str, python: str) -> dict:
    """One measurement in a fresh process, with modules cached as bytecode, as users have it."""
    env = os.environ | {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [python, str(HERE / "worker.py"), case, adapter],
        capture_output=True, text=True, timeout=900,
        env=env,
    )  # fmt: skip
    line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT ")), None)
    if line is None:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:160]}
    return json.loads(line[7:])


def measure(
    cases: list[str], rounds: int, pythons: dict[str, str]
) -> dict[str, dict[str, list[dict]]]:
    """All runs, by case and adapter."""
    runs = {case: {a: [] for a in (["tojax"] if case == "demo" else ADAPTERS)} for case in cases}
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("measuring", total=rounds * sum(map(len, runs.values())))
        for _ in range(rounds):
            for case, adapters in runs.items():
                for adapter, results in adapters.items():
                    progress.update(task, description=f"{case} {adapter}")
                    results.append(worker(case, adapter, pythons.get(adapter, sys.executable)))
                    progress.advance(task)
    return runs


def show(console: Console, case: str, adapters: dict[str, list[dict]]) -> bool:
    """Prints a case's table; whether the checksums agree."""
    good = {a: [r for r in runs if "error" not in r] for a, runs in adapters.items()}
    fields = [k for k in next((r[0] for r in good.values() if r), {}) if k != "check"]
    table = Table(
        "adapter",
        *[x for f in fields for x in (f, "tojax /")],
        "check",
        title=f"{case}: {CASES[case]}",
        title_justify="left",
    )
    median = {
        a: {f: statistics.median(r[f] for r in runs) for f in fields}
        for a, runs in good.items()
        if runs
    }
    checks = {a: runs[0].get("check") for a, runs in good.items() if runs}
    for adapter, runs in adapters.items():
        if adapter not in median:
            table.add_row(adapter, runs[0]["error"])
            continue
        cells = []
        for f in fields:
            cells.append(f"{median[adapter][f]:.4g}")
            ratio = median.get("tojax", {}).get(f, float("nan")) / median[adapter][f]
            cells.append("" if adapter == "tojax" else f"{ratio:.3f}")
        table.add_row(adapter, *cells, str(checks[adapter]))
    console.print(table)
    values = [c for c in checks.values() if c is not None]
    return all(abs(v - values[0]) <= AGREE * abs(values[0]) for v in values)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", default=",".join(CASES), help=", ".join(f"{k}: {v}" for k, v in CASES.items())
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--torchax", default=sys.executable, help="Python interpreter with torchax installed"
    )
    parser.add_argument("--out", type=Path, help="write all measurements as JSON")
    options = parser.parse_args()
    runs = measure(options.cases.split(","), options.rounds, {"torchax": options.torchax})
    console = Console(width=None if sys.stdout.isatty() else 150)
    agree = [show(console, case, adapters) for case, adapters in runs.items()]
    if options.out:
        options.out.write_text(json.dumps(runs, indent=1))
    if not all(agree):
        sys.exit("the checksums differ: no time above means anything")


if __name__ == "__main__":
    main()
