"""Every model type of transformers as a tiny random model: nine checks of each beside torch.

python -m proof.transformers_types                              # those that have no row yet
python -m proof.transformers_types --types llama,t5 --again
python -m proof.transformers_types --checks forward,jit --shard 0/2

A row for each type in results/transformers_types.csv; a check is "ok", "n/a: why" or "no: the first
line of the error". Checks run in a worker process. It is started anew after a crash or when a check
takes too long, and goes on with the next check.
"""

from __future__ import annotations

import argparse
import atexit
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from proof import records

if TYPE_CHECKING:
    from proof.tiny_inputs import Tiny

CHECKS = ("forward", "gradient", "jit", "vmap", "roll", "save", "generate", "shard", "flax")
COLUMNS = ("type", "class", "parameters", *CHECKS, "seconds", "date", "versions", "command")
PACKAGES = ("jax", "torch", "transformers", "flax")
RESULTS = records.RESULTS / "transformers_types.csv"
# Programs run once: XLA and LLVM do no more than they must.
SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "4",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
}
WAITING = 8  # on a machine with other work the clock is no measure, but nothing waits for ever
MEMORY = 8e9
TYPES_PER_WORKER = 25  # compiled programs take memory

# Runs a check by its name; returns a remark on it, or "".
Run = Callable[[str], str]


def checks_of(case: Tiny) -> Run:
    """Returns what runs the nine checks of a tiny model."""
    from proof.checks import Checks

    checks = Checks(case)
    return lambda name: getattr(checks, name)() or ""


def work(pipe: Connection, runs_of: Callable[[Tiny], Run]) -> None:
    """Runs a worker: (type, checks) come in, ("about", ...), (check, result)s and "done" go out."""
    warnings.simplefilter("ignore")
    import jax
    import torch
    import transformers

    from proof.comparison import NotApplicable, first_line
    from proof.tiny_inputs import tiny
    from proof.tiny_models import NoTinyModel, class_name

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    pipe.send("ready")
    for model_type, names in iter(pipe.recv, None):
        pipe.send(("class", class_name(model_type)))
        try:
            case = tiny(model_type)
        except NoTinyModel as error:
            cause = f": {first_line(error.__cause__)}" if error.__cause__ else ""
            for name in names:
                pipe.send((name, f"n/a: {error}{cause}"))
        else:
            pipe.send(("parameters", sum(p.numel() for p in case.model.parameters())))
            run = runs_of(case)
            for name in names:
                try:
                    remark = run(name)
                    result = f"ok: {remark}" if remark else "ok"
                except NotApplicable as why:
                    result = f"n/a: {why}"
                except Exception as error:
                    result = f"no: {first_line(error)}"
                pipe.send((name, result))
        jax.clear_caches()
        pipe.send("done")


class Worker:
    """A process for the checks, replaced after a crash, after a slow check and after many types."""

    def __init__(self, seconds: float, runs_of: Callable[[Tiny], Run] = checks_of):
        self.seconds, self.runs_of = seconds, runs_of
        self.process, self.count = None, 0

    def run(self, model_type: str, checks: Sequence[str]) -> dict[str, object]:
        """Returns the cells of a type; each check has the same limit of time."""
        cells: dict[str, object] = {}
        pending = list(checks)
        self.count += 1
        if self.count % TYPES_PER_WORKER == 0:
            self.stop()
        while pending:
            self.start()
            self.pipe.send((model_type, pending))
            failure = self._receive(cells)
            left = [name for name in pending if name not in cells]
            if failure or left:
                self.stop()
            if failure and "parameters" not in cells:
                cells |= dict.fromkeys(left, f"n/a: no small model in torch: {failure}")
                left = []
            elif failure and left:
                cells[left.pop(0)] = f"no: {failure}"
            pending = left
        return cells

    def _receive(self, cells: dict[str, object]) -> str:
        """Puts what a worker sends into the cells; returns why it stopped before it was done."""
        process = psutil.Process(self.process.pid)
        spent = lambda: sum(process.cpu_times()[:2])
        try:
            begin, clock = spent(), time.monotonic()
            while True:
                if self.pipe.poll(min(1, self.seconds)):
                    if (message := self.pipe.recv()) == "done":
                        return ""
                    cells.update([message])
                    begin, clock = spent(), time.monotonic()
                elif process.memory_info().rss > MEMORY:
                    return f"more than {MEMORY / 1e9:.0f} GB of memory"
                elif spent() - begin > self.seconds:
                    return f"longer than {self.seconds:.0f} s of the processor's time"
                elif time.monotonic() - clock > WAITING * self.seconds:
                    return f"longer than {WAITING * self.seconds:.0f} s"
        except (EOFError, ConnectionError, psutil.NoSuchProcess):
            return "the process died"

    def start(self) -> None:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, end = context.Pipe()
            self.process = context.Process(target=work, args=(end, self.runs_of), daemon=True)
            self.process.start()
            end.close()
            self.pipe.recv()

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.join()
            self.process = None


def save(path: Path, *rows: dict[str, object], columns: Sequence[str] = COLUMNS) -> None:
    """Writes the rows of types; cells that are not in them stay as they were."""

    def change(old: list[records.Row]) -> list[records.Row]:
        by_type = {row["type"]: row for row in old}
        for row in rows:
            by_type[row["type"]] = by_type.get(row["type"], dict.fromkeys(columns, "")) | row
        return sorted(by_type.values(), key=lambda row: row["type"])

    records.update(path, columns, change)


def pending(path: Path, types: Iterable[str], checks: Sequence[str]) -> dict[str, list[str]]:
    """Returns the checks that a type has no result of yet, for each type that has some."""
    rows = {row["type"]: row for row in records.read(path)}
    cell = lambda name, check: rows.get(name, {}).get(check, "")
    left = {name: [check for check in checks if not cell(name, check)] for name in types}
    return {name: names for name, names in left.items() if names}


def arguments(values: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--types", help="these, with commas")
    parser.add_argument("--checks", default=",".join(CHECKS), help="these, with commas")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th type from the i-th on")
    parser.add_argument("--again", action="store_true", help="also what has a result")
    parser.add_argument("--seconds", type=float, default=90, help="of CPU that a check may take")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the CSV file")
    return parser.parse_args(values)


def main(values: Sequence[str] | None = None) -> None:
    """Runs the checks and writes a row for each type."""
    options = arguments(values)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from proof.tiny_models import class_name, types

    checks = [name for name in CHECKS if name in options.checks.split(",")]
    save(options.out, *({"type": name, "class": class_name(name)} for name in types()))
    names = options.types.split(",") if options.types else types()
    index, count = map(int, options.shard.split("/"))
    names = names[index::count]
    todo = dict.fromkeys(names, checks) if options.again else pending(options.out, names, checks)
    worker = Worker(options.seconds)
    atexit.register(worker.stop)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the worker ends, too
    for model_type, asked in todo.items():
        begin = time.monotonic()
        cells = worker.run(model_type, asked)
        row = {"type": model_type, **cells, "seconds": f"{time.monotonic() - begin:.0f}"}
        row |= {"date": date.today().isoformat(), "versions": records.versions(*PACKAGES)}
        run = f"python -m proof.transformers_types --types {model_type} --again"
        save(options.out, row | {"command": records.command(run)})
        bad = {k: v for k, v in cells.items() if str(v).startswith("no: ")}
        print(model_type, row["seconds"], bad or "ok", flush=True)
    worker.stop()


if __name__ == "__main__":
    sys.exit(main())
