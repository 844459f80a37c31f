"""torch's module database as tests: outputs and state, in eval and in train mode."""

import random
import warnings

import jax
import pytest

from tests.conformance import module_db
from tests.expectations import expected_failures

pytestmark = pytest.mark.sample(every=2)

SAMPLED = 12


def cases():
    names = sorted(info.name for info in module_db.module_db)
    sample = set(random.Random(0).sample(names, SAMPLED))
    for info in module_db.module_db:
        marks = [] if info.name in sample else [pytest.mark.conformance]
        for mode in module_db.MODES:
            yield pytest.param(info, mode, id=f"{mode}-{info.name}", marks=marks)


@pytest.mark.parametrize(("info", "mode"), list(cases()))
def test_module(info, mode, record_property):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status, what = module_db.run(info, module_db.MODES[mode])
    record_property("suite", f"modules {mode}")
    record_property("status", status)
    jax.clear_caches()
    if status == "skip":
        pytest.skip(f"torch makes no samples with inputs: {what}")
    if expected := expected_failures("module_db.txt").get(f"{mode}-{info.name}"):
        assert status != "ok", f"passes now, though it should not: {expected}"
        pytest.xfail(expected)
    assert status == "ok", what


def test_expected_failures_are_cases():
    known = {f"{mode}-{i.name}" for i in module_db.module_db for mode in module_db.MODES}
    assert set(expected_failures("module_db.txt")) <= known
