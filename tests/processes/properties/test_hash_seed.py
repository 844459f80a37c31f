"""Programs are the same in every process, whatever the order of its sets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.properties import subjects
from tests.sampling import further

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[3]

PROGRAMS = """
import hashlib, re, sys
import conftest, jax
from tests.properties import subjects
from tests.sampling import further
for name in sys.argv[1:]:
    subject = subjects.build(name)
    model = subject.model
    run, params = subject.function(), model.params
    jaxpr = re.sub("0x[0-9a-f]+", "", str(jax.make_jaxpr(run)(params, subject.arrays)))
    loss = lambda params: subjects.total(run(params, subject.arrays))
    lowered = [jax.jit(x).lower(params, subject.arrays) for x in (run,)]
    grad = jax.jit(jax.grad(loss)).lower(params).as_text() if params else ""
    texts = jaxpr, lowered[0].as_text(), grad, repr(model), str([*params, *model.state])
    print(name, *(hashlib.sha256(x.encode()).hexdigest()[:16] for x in texts))
"""


def programs(names, seed):
    """Returns digests of the programs of each type, in a process with this seed."""
    env = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAMS, *names]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


SMALL = ["llama", "bert"]
GROUPS = [subjects.TORCH[:18], subjects.TORCH[18:], [*subjects.OTHERS]]


@pytest.mark.parametrize("names", [SMALL, *further(*GROUPS)], ids=len)
def test_programs_do_not_depend_on_the_seed(names):
    first, other = programs(names, 1), programs(names, 2)
    assert len(first) == len(names) and first == other
