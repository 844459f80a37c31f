"""Models of other people's torch packages as differentiable JAX functions: five checks of each.

python -m proof.packages                                  # those that have no row yet
python -m proof.packages --only gpytorch,zuko
python -m proof.packages --only torch-geometric/GCNConv --again --trace   # with errors in full

A row for each case in results/packages.csv; a check is "ok", "n/a: why" or "no: the first line of
the error". Each case runs in a process of its own, which is started anew after a crash or when a
check takes too long, and goes on with the next check.
"""

from __future__ import annotations

import argparse
import atexit
import multiprocessing
import os
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from datetime import date
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path

from proof import records
from proof.cases import Case, table
from proof.packages_page import CHECKS
from proof.transformers_types import SETTINGS, Worker

COLUMNS = ("package", "case", "dtype", *CHECKS, "seconds", "date", "versions", "command")
RESULTS = records.RESULTS / "packages.csv"
# Imported once, for the processes of all cases; the others start threads, or take no time.
MODULES = {
    "botorch": "botorch.models",
    "e3nn": "e3nn.o3",
    "gpytorch": "gpytorch",
    "kornia": "kornia",
    "lightning": "lightning",
    "mace-torch": "mace.modules",
    "monai": "monai.networks.nets",
    "nequip": "nequip.model",
    "neuraloperator": "neuralop.models",
    "open_clip_torch": "open_clip",
    "pyro-ppl": "pyro.distributions",
    "sbi": "sbi.neural_nets",
    "segmentation-models-pytorch": "segmentation_models_pytorch",
    "timm": "timm",
    "torch-geometric": "torch_geometric.nn",
    "torch-harmonics": "torch_harmonics",
    "torchmetrics": "torchmetrics.functional",
    "torchvision": "torchvision.models",
}
VERBOSE = "PROOF_TRACEBACKS"  # a variable: also print where errors come from


def work(pipe: Connection, _: object = None) -> None:
    """Runs a process of a case: (case, checks) come in, (check, result)s and "done" go out."""
    warnings.simplefilter("ignore")
    import jax
    import torch

    from proof.comparison import NotApplicable, first_line
    from proof.package_checks import Checks

    torch.set_num_threads(1)
    pipe.send("ready")
    for name, checks in iter(pipe.recv, None):
        try:
            case = Checks(table()[name])
            case.torch(0)
        except Exception as error:
            show(error)
            for check in checks:
                pipe.send((check, f"n/a: torch itself: {first_line(error)}"))
            pipe.send("done")
            continue
        pipe.send(("parameters", ""))  # from here on it is not torch that fails
        for check in checks:
            try:
                result = getattr(case, check)() or "ok"
            except NotApplicable as why:
                result = f"n/a: {why}"
            except Exception as error:
                show(error)
                result = f"no: {re.sub(' at 0x[0-9a-f]+', '', first_line(error))}"
            pipe.send((check, result))
        jax.clear_caches()
        pipe.send("done")


def show(error: Exception) -> None:
    """Prints an error in full where that was asked for."""
    if os.environ.get(VERBOSE):
        traceback.print_exception(error)


class Process(Worker):
    """A process for one case, forked from one that has imported torch, JAX and the packages."""

    preload: Sequence[str] = ()

    def start(self) -> None:
        if self.process is None:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["proof.package_checks", *self.preload])
            self.pipe, end = context.Pipe()
            self.process = context.Process(target=work, args=(end,), daemon=True)
            self.process.start()
            end.close()
            self.pipe.recv()

    def cells(self, name: str, checks: Sequence[str]) -> dict[str, object]:
        """Returns the cells of a case."""
        self.stop()
        cells = self.run(name, checks)
        return {check: cells[check] for check in checks}


def save(path: Path, row: dict[str, object]) -> None:
    """Writes the row of a case in the place of its former one, in the order of the table."""
    key = lambda row: f"{row['package']}/{row['case']}"
    places = {name: i for i, name in enumerate(table())}

    def change(old: list[records.Row]) -> list[records.Row]:
        rows = {key(x): x for x in old} | {key(row): row}
        return sorted(rows.values(), key=lambda x: places.get(key(x), len(places)))

    records.update(path, COLUMNS, change)


def row_of(case: Case, cells: dict[str, object], seconds: float) -> dict[str, object]:
    """Returns the row of a case."""
    row = {"package": case.package, "case": case.name, **cells, "seconds": f"{seconds:.0f}"}
    row |= {"dtype": "float64" if case.wide else "float32", "date": date.today().isoformat()}
    named = ["jax", "torch", case.package]
    installed = [x for x in named if x == "jax" or version(x)]
    run = f"python -m proof.packages --only '{case.package}/{case.name}' --again"
    return row | {"versions": records.versions(*installed), "command": records.command(run)}


def version(package: str) -> str:
    """Returns the version of a package that is installed, or nothing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def chosen(only: str, again: bool, path: Path) -> dict[str, Case]:
    """Returns the cases that were asked for; those alone that have no row yet, if not again."""
    names = only.split(",") if only else []
    fits = lambda key: not names or any(f"{key}/".startswith(f"{name}/") for name in names)
    done = set() if again else {f"{x['package']}/{x['case']}" for x in records.read(path)}
    return {key: case for key, case in table().items() if fits(key) and key not in done}


def arguments(values: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="PACKAGE or PACKAGE/CASE, several with commas")
    parser.add_argument("--again", action="store_true", help="also what has a row")
    parser.add_argument("--seconds", type=float, default=90, help="of CPU that a check may take")
    parser.add_argument("--trace", action="store_true", help="print errors in full")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the CSV file")
    return parser.parse_args(values)


def main(values: Sequence[str] | None = None) -> None:
    """Runs the checks and writes a row for each case."""
    options = arguments(values)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if options.trace:
        os.environ[VERBOSE] = "1"
    todo = chosen(options.only, options.again, options.out)
    worker = Process(options.seconds)
    worker.preload = sorted({MODULES[x.package] for x in todo.values() if x.package in MODULES})
    atexit.register(worker.stop)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the worker ends, too
    for name, case in todo.items():
        begin = time.monotonic()
        cells = worker.cells(name, CHECKS)
        seconds = time.monotonic() - begin
        save(options.out, row_of(case, cells, seconds))
        bad = {k: v for k, v in cells.items() if v != "ok"}
        print(name, f"{seconds:.0f}", bad or "ok", flush=True)
    worker.stop()


if __name__ == "__main__":
    sys.exit(main())
