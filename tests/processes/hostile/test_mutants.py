"""Hostile and damaged files: an error of ours or right values, and nothing else that happens."""

import sys
from importlib.util import find_spec

import pytest

from tests.processes.hostile.corpus import BY_NAME, CORPUS
from tests.processes.hostile.formats import FORMATS
from tests.processes.hostile.judge import Judge

pytestmark = [
    pytest.mark.processes,
    pytest.mark.sample(every=19),
    pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc"),
]
# jaxlib's reader of bytecode is native code: some damaged types end the process, jax.export's too.
NATIVE = ("exported", "bytecode")


@pytest.fixture(scope="module")
def judge():
    with Judge() as judge:
        yield judge


@pytest.mark.parametrize("name", [x.name for x in CORPUS])
def test_mutant(judge, name):
    mutant = BY_NAME[name]
    if find_spec(FORMATS[mutant.format].needs) is None:
        pytest.skip(f"{FORMATS[mutant.format].needs} is not installed")
    verdict = judge(name)
    assert verdict.right or (verdict.outcome == "crash" and mutant.format in NATIVE), verdict
