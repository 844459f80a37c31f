"""JAX functions by way of ``jax.export`` and back: values, gradients in both modes, vmap.

``make test`` runs every sixteenth, ``make conformance`` all of them. What is known to fail stands
in tests/expect/stablehlo_set.txt as "NAME MODE".
"""

import jax
import pytest

from tests.conformance import stablehlo_set
from tests.conformance.record import modes
from tests.expectations import complaints, expected_failures

pytestmark = pytest.mark.sample(every=2)

EXPECTED = expected_failures("stablehlo_set.txt")


def cases():
    for i, name in enumerate(stablehlo_set.CASES):
        yield pytest.param(name, id=name, marks=[] if i % 16 == 0 else [pytest.mark.conformance])


@pytest.mark.parametrize("name", list(cases()))
def test_function(name, record_property):
    by_mode = stablehlo_set.run(name)
    found = {f"{name} {mode}": wrong for mode, wrong in by_mode.items()}
    failed = {case: wrong for case, wrong in found.items() if wrong}
    record_property("suite", "StableHLO")
    record_property("status", "error" if failed else "ok")
    jax.clear_caches()
    expected = {case: why for case, why in EXPECTED.items() if case.rpartition(" ")[0] == name}
    reasons = {case.rpartition(" ")[2]: why for case, why in expected.items()}
    record_property("modes", modes(by_mode, reasons))
    assert not (wrong := complaints(failed, expected)), "\n".join(wrong)


def test_expected_failures_are_cases():
    assert {case.rpartition(" ")[0] for case in EXPECTED} <= {*stablehlo_set.CASES}
