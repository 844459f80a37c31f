"""A process that is alone, one that should not be, and one that fails among others."""

import subprocess
import sys
import textwrap
import time

import pytest

from tojax.errors import WrongArguments
from tojax.parallel import initialize
from tojax.parallel._initialize import COUNTS

pytestmark = pytest.mark.sample(every=2)


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """No variables of a job that the tests themselves run in."""
    for name in (*COUNTS, "JOB_COMPLETION_INDEX", "JAX_COORDINATOR_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "said", [("SLURM_NTASKS", "4"), ("WORLD_SIZE", "2"), ("JOB_COMPLETION_INDEX", "0")]
)
def test_a_job_that_jax_does_not_find(said, monkeypatch):
    """Each would do the whole work: an error."""
    monkeypatch.setattr("jax.distributed.initialize", not_found)
    monkeypatch.setenv(*said)
    with pytest.raises(WrongArguments, match="=".join(said)):
        initialize()


def not_found(*args, **kwargs):
    """What JAX does outside of a job; here its backend is in use already."""
    raise ValueError("coordinator_address should be defined.")


def test_jaxs_own_errors_stay():
    with pytest.raises((ValueError, RuntimeError)):
        initialize("127.0.0.1:1", None, None)


FAILS = """
    import tojax
    tojax.parallel.initialize()
    import jax
    print("begun", jax.process_count(), flush=True)
    if jax.process_index() == 1:
        raise KeyError("a mistake")
    jax.distributed.shutdown()  # waits for the other
"""


@pytest.mark.processes
def test_an_exception_ends_the_job(tmp_path):
    """At once, although JAX's way out would wait minutes for the others."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(FAILS))
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tojax.parallel.launch", "-n", "2", str(path)],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 1 and "KeyError: 'a mistake'" in done.stdout
    assert done.stdout.count("begun 2") == 2
    assert "process 1 failed (1); stopping the 1 that still run" in done.stderr
    assert time.monotonic() - begin < 100
