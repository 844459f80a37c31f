"""The process that every test and every doctest runs in; loaded before JAX and torch are.

Eight CPU devices so that meshes are real, one torch thread so that workers do not fight for cores,
no model hub. Environment variables, not calls: child processes of a test inherit them, and tests
that need neither framework do not wait for its import.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

if "jax" not in sys.modules:  # its configuration is read when it is imported
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["JAX_NUM_CPU_DEVICES"] = "8"
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # LLVM's: most tests only compile
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # torch.set_num_threads(1)
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# A folder whose optional package is missing cannot be imported, so it is not collected either.
NEEDS = {
    "torch": "torch",
    "hf": "transformers",
    "tensorflow": "tensorflow",
    "flax": "flax",
    "train": "optax",
    "parallel": "transformers",
    "cli": "typer",
}
MISSING = {folder: package for folder, package in NEEDS.items() if find_spec(package) is None}
collect_ignore_glob = [f"{top}/{folder}/*" for folder in MISSING for top in ("tojax", "tests")]


# Of the cases of each parametrized test there the first and then every nth are in `make test`, all
# of them in `make conformance`.
SAMPLED = {
    "tests/flax/codegen/": 5,
    "tests/hf/generation/": 5,
    "tests/hf/test_families.py": 6,
    "tests/parallel/test_packed.py": 3,
    "tests/parallel/test_shard.py": 5,
    "tests/stablehlo/": 4,
    "tests/tensorflow/ops/": 5,
    "tests/tensorflow/": 4,
    "tests/torch/autograd/": 2,
    "tests/torch/data_dependent/": 2,
    "tests/torch/ops/": 4,
    "tests/torch/state/test_optimizers.py": 3,
    "tests/torch/state/test_schedules.py": 3,
    "tests/torch/test_extremes.py": 5,
    "tests/train/test_examples.py": 3,
    "tests/transforms/test_roll.py": 5,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what `make test` leaves out."""
    seen: dict[str, int] = {}
    for item in items:
        every = next((n for home, n in SAMPLED.items() if item.nodeid.startswith(home)), 1)
        name = item.nodeid.partition("[")[0]
        place = seen[name] = seen.get(name, -1) + 1
        if place % every:
            item.add_marker(pytest.mark.conformance)


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
        f"not collected: tojax/{folder}, tests/{folder} ({package} is not installed)"
        for folder, package in MISSING.items()
    ]


@pytest.fixture(autouse=True)
def _examples_know_tojax(doctest_namespace: dict) -> None:
    import tojax

    doctest_namespace["tojax"] = tojax
