"""The judge sees what must not happen: a test that cannot fail would prove nothing."""

import sys

import pytest

from tests.processes.hostile.corpus import PROBES
from tests.processes.hostile.judge import Judge

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc"),
]
# The hook that sees files outside of the folder sees these, too.
OUTSIDE = ("import", "process")


def test_what_must_not_happen():
    with Judge() as judge:
        outcomes = {word: judge(mutant.name).outcome for word, mutant in PROBES.items()}
    assert outcomes == {word: "outside" if word in OUTSIDE else word for word in PROBES}
