"""The suites that others wrote, one after the other; the outcomes go to proof/results.

python -m proof.suites                                  # all of them: hours
python -m proof.suites --only onnx,keras -- -n 0 -k relu   # some; what follows -- is pytest's
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from proof.records import RESULTS, ROOT

# The tests of each file of results.
SUITES = {
    "stablehlo": ("stablehlo_shapes", "stablehlo_artifacts", "stablehlo_set"),
    "onnx": ("onnx_set",),
    "keras": ("keras_set", "keras_applications"),
    "tensorflow": ("tensorflow_set",),
    "torch": ("module_db", "op_db"),
}
# Programs run once: XLA and LLVM do no more than they must.
SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
    "HF_HUB_OFFLINE": "1",
}


def command(name: str, options: Sequence[str] = ()) -> list[str]:
    """Returns the command that runs the suites of a file of results."""
    tests = [f"tests/conformance/test_{test}.py" for test in SUITES[name]]
    path = (RESULTS / f"{name}.csv").relative_to(ROOT).as_posix()
    marks = ["-m", "conformance or not conformance"]
    return [sys.executable, "-m", "pytest", *tests, *marks, "--record", path, *options]


def main(values: Sequence[str] | None = None) -> int:
    """Runs the suites; returns 1 where a test of them failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(SUITES), help="these, with commas")
    parser.add_argument("options", nargs="*", help="of pytest, after --")
    given = parser.parse_args(values)
    environment = SETTINGS | os.environ
    statuses = []
    for name in given.only.split(","):
        run = subprocess.run(command(name, given.options), cwd=ROOT, env=environment)
        statuses.append(run.returncode)
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())
