"""A process that is alone, and one that should not be."""

import pytest

from anyjax.errors import WrongArguments
from anyjax.parallel import initialize
from anyjax.parallel._initialize import COUNTS

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
