"""torch's operator database as tests: values, gradients, forward mode, vmap; several dtypes.

``make test`` runs a seeded sample of the entries, ``make conformance`` all of them. What is known
to fail stands in tests/expect/op_db_MODE.txt (float32) or op_db_MODE_DTYPE.txt, with ``_x64`` where
JAX keeps 64-bit dtypes; where it passes, this fails.
"""

import random
import warnings

import jax
import pytest
import torch

from tests.conformance import op_db
from tests.expectations import FOLDER, expected_failures

pytestmark = pytest.mark.sample(every=2)

# mode, dtype, whether JAX keeps 64-bit dtypes: how many entries `make test` samples
CONFIGS = {
    ("values", "float32", False): 15,
    ("grad", "float32", False): 15,
    ("jvp", "float32", False): 10,
    ("vmap", "float32", False): 10,
    ("on_jax", "float32", False): 5,
    ("on_jax_grad", "float32", False): 5,
    ("compiled", "float32", False): 8,
    ("bucketed", "float32", False): 8,
    ("values", "bfloat16", False): 3,
    ("values", "float16", False): 0,
    ("values", "int64", False): 3,
    ("values", "int32", False): 0,
    ("values", "uint8", False): 3,
    ("values", "bool", False): 3,
    ("values", "complex64", False): 3,
    ("grad", "complex64", False): 3,
    ("values", "float64", True): 3,
    ("grad", "float64", True): 3,
    ("values", "int64", True): 3,
    ("values", "int32", True): 0,
    ("values", "complex128", True): 0,
}


def entries(mode: str, dtype: str) -> dict:
    """The entries that torch CPU supports, by name."""
    found = [e for e in op_db.op_db if op_db.supports(e, mode, getattr(torch, dtype))]
    return {op_db.name_of(e): e for e in found}


def expected_of(mode: str, dtype: str, x64: bool) -> dict[str, str]:
    """By entry; ``NAME (torch 2.10)`` is one of that release alone."""
    name = f"op_db_{mode}" + f"_{dtype}" * (dtype != "float32") + "_x64" * x64 + ".txt"
    listed = expected_failures(name) if (FOLDER / name).exists() else {}
    split = {key.partition(" (torch "): why for key, why in listed.items()}
    here = lambda release: torch.__version__.startswith(release.removesuffix(")"))
    return {entry: why for (entry, _, release), why in split.items() if here(release)}


def cases():
    for config, count in CONFIGS.items():
        mode, dtype, x64 = config
        found = entries(mode, dtype)
        sample = set(random.Random(0).sample(sorted(found), count))
        for name, entry in found.items():
            marks = [] if name in sample else [pytest.mark.conformance]
            case = f"{mode}-{dtype}{'-x64' * x64}-{name}"
            yield pytest.param(config, entry, id=case, marks=marks)


@pytest.mark.parametrize(("config", "entry"), list(cases()))
def test_entry(config, entry, record_property):
    mode, dtype, x64 = config
    record_property("suite", f"{mode} {dtype}" + " x64" * x64)
    expected = expected_of(*config).get(op_db.name_of(entry))
    with warnings.catch_warnings(), jax.enable_x64(x64):
        warnings.simplefilter("ignore")
        status, what = op_db.run(entry, mode, getattr(torch, dtype))
    record_property("status", status)
    jax.clear_caches()
    if status == "skip":
        pytest.skip(f"torch itself cannot: {what}")
    if expected:
        assert status not in ("ok", "eager"), f"passes now, though it should not: {expected}"
        pytest.xfail(expected)
    assert status in ("ok", "eager"), what


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c[0]}-{c[1]}{'-x64' * c[2]}")
def test_expected_failures_are_entries(config):
    assert set(expected_of(*config)) <= set(entries(*config[:2]))
