"""Programs are the same in every process, whatever the order of its sets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.properties import subjects

pytestmark = [pytest.mark.processes, pytest.mark.conformance]
ROOT = Path(__file__).parents[3]

PROGRAMS = """
import hashlib, re, sys
import conftest, jax
from tests.properties import subjects
for name in sys.argv[1:]:
    subject = subjects.build(name)
    model = subject.model
    run, params = subject.function(), model.params
    jaxpr = re.sub("0x[0-9a-f]+", "", str(jax.make_jaxpr(run)(params, subject.arrays)))
    loss = lambda params: subjects.total(run(params, subject.arrays))
    hlo = jax.jit(run).lower(params, subject.arrays).as_text()
    grad = jax.jit(jax.grad(loss)).lower(params).as_text() if params else ""
    texts = jaxpr, hlo, grad, repr(model), str([*params, *model.state])
    print(name, *(hashlib.sha256(x.encode()).hexdigest()[:16] for x in texts))
"""


def programs(names, seed):
    """Returns digests of the programs of each type, in a process with this seed."""
    env = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAMS, *names]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


GROUPS = [subjects.TORCH[:18], subjects.TORCH[18:], [*subjects.OTHERS]]


@pytest.mark.parametrize("names", GROUPS, ids=["first", "second", "others"])
def test_programs_do_not_depend_on_the_seed(names):
    first, other = programs(names, 1), programs(names, 2)
    assert len(first) == len(names) and first == other
