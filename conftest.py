"""The process that every test and every doctest runs in; loaded before JAX and torch are.

Eight CPU devices so that meshes are real, one torch thread so that workers do not fight for cores,
no model hub. Environment variables, not calls: child processes of a test inherit them, and tests
that need neither framework do not wait for its import.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.expectations import of_versions


def flags_of_xla(*wanted: str) -> str:
    """Returns those of the flags that the installed XLA has: it ends a process for any other."""
    ask = "from jaxlib import _jax; _jax.CompileOptions().executable_build_options.debug_options"
    run = lambda flag: subprocess.run(
        [sys.executable, "-c", ask], env=os.environ | {"XLA_FLAGS": flag}, capture_output=True
    )
    return " ".join(flag for flag in wanted if run(flag).returncode == 0)


if "jax" not in sys.modules:  # its configuration is read when it is imported
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["JAX_NUM_CPU_DEVICES"] = "8"
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # one answer on all processors
    # Most tests only compile: LLVM does no more than it must, and one module holds all kernels.
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    if "XLA_FLAGS" not in os.environ:  # workers inherit the answer
        os.environ["XLA_FLAGS"] = flags_of_xla("--xla_cpu_use_fusion_emitters=false")
for number in (signal.SIGINT, signal.SIGHUP):  # ignored in the background; children inherit that
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # torch.set_num_threads(1)
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# CUDA builds of torch bring Triton, whose LLVM ends the process if TensorFlow's is there before it.
if find_spec("triton") and find_spec("tensorflow") and "tensorflow" not in sys.modules:
    importlib.import_module("triton._C.libtriton")

# A folder whose optional package is missing cannot be imported, so it is not collected either.
NEEDS = {
    "torch": "torch",
    "hf": "transformers",
    "tensorflow": "tensorflow",
    "flax": "flax",
    "train": "optax",
    "parallel": "transformers",
    "properties": "transformers",
    "cli": "typer",
    "proof": "transformers",
}
MISSING = {folder: package for folder, package in NEEDS.items() if find_spec(package) is None}
TOPS = ("anyjax", "tests", "tests/processes")
collect_ignore_glob = [f"{top}/{folder}/*" for folder in MISSING for top in TOPS]


pytest_plugins = ["tests.browser", "tests.sampling"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what fails with an installed version."""
    failing = of_versions()
    for item in items:
        if item.nodeid in failing:
            item.add_marker(pytest.mark.xfail(reason=failing[item.nodeid], strict=True))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Below tests/*/ only test_*.py is collected: the scripts there hold no examples."""
    if not collection_path.is_relative_to(config.rootpath):
        return None
    parts = collection_path.relative_to(config.rootpath).parts
    inner = parts[:1] == ("tests",) and len(parts) > 2 and collection_path.suffix == ".py"
    return True if inner and not parts[-1].startswith("test_") else None


def pytest_report_header() -> list[str]:
    """What is left out, and why."""
    return [
        f"not collected: anyjax/{folder}, tests/{folder} ({package} is not installed)"
        for folder, package in MISSING.items()
    ]


@pytest.fixture(autouse=True)
def _examples_know_anyjax(doctest_namespace: dict) -> None:
    import anyjax

    doctest_namespace["anyjax"] = anyjax


@pytest.fixture(autouse=True)
def _the_same_weights() -> None:
    """Each test draws its weights from the same seed, whatever ran before it in its process."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def _programs_are_freed() -> Iterator[None]:
    """Frees compiled programs between files once they are many: a worker runs many files."""
    yield
    if "jax" in sys.modules and _resident() > 4 * 2**30:
        gc.collect()
        sys.modules["jax"].clear_caches()


def _resident() -> int:
    """Returns the bytes of this process in memory; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0
