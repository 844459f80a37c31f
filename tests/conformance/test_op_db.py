"""torch's operator database as tests: values and gradients in float32, under jit.

``make test`` runs a seeded sample of the entries, ``make conformance`` all of them. What is known
to fail stands in tests/expect/op_db_values.txt and op_db_grad.txt with its reason; where it passes,
this fails.
"""

import random
import warnings

import jax
import pytest
import torch

from tests.conformance import op_db
from tests.expectations import expected_failures

KINDS = {"values": False, "grad": True}
SAMPLED = 25  # entries of each kind in `make test`


def entries(grad: bool):
    """Names of the entries that torch CPU supports in float32."""
    found = {}
    for entry in op_db.op_db:
        dtypes = entry.supported_backward_dtypes("cpu") if grad else entry.supported_dtypes("cpu")
        if torch.float32 in dtypes and (entry.supports_autograd or not grad):
            found[op_db.name_of(entry)] = entry
    return found


def cases():
    for kind, grad in KINDS.items():
        found = entries(grad)
        sample = set(random.Random(0).sample(sorted(found), SAMPLED))
        for name, entry in found.items():
            marks = [] if name in sample else [pytest.mark.conformance]
            yield pytest.param(kind, entry, id=f"{kind}-{name}", marks=marks)


@pytest.mark.parametrize(("kind", "entry"), list(cases()))
def test_entry(kind, entry):
    expected = expected_failures(f"op_db_{kind}.txt").get(op_db.name_of(entry))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status, what = op_db.run(entry, torch.float32, KINDS[kind])
    jax.clear_caches()
    if status == "skip":
        pytest.skip(f"torch makes no samples: {what}")
    if expected:
        assert status != "ok", f"passes now, though it should not: {expected}"
        pytest.xfail(expected)
    assert status == "ok", what


@pytest.mark.parametrize("kind", KINDS)
def test_expected_failures_are_entries(kind):
    assert set(expected_failures(f"op_db_{kind}.txt")) <= set(entries(KINDS[kind]))
