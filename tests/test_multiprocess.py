"""Arrays of several processes, in one process; tests/processes/train has several."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from anyjax import multiprocess
from anyjax.errors import ProcessLost, WrongValue

MESH = jax.make_mesh((8,), ("data",))
APART = NamedSharding(MESH, PartitionSpec("data"))


def test_put_and_values():
    x = np.arange(16.0, dtype=np.float32)
    there = multiprocess.put(x, APART)
    assert there.sharding == APART and (multiprocess.values(there) == x).all()
    key = multiprocess.put(jax.random.key(0), NamedSharding(MESH, PartitionSpec()))
    assert key.dtype == jax.random.key(0).dtype


def test_alone_all_are_the_same():
    assert multiprocess.leads() and multiprocess.gathered([3]).tolist() == [[3]]
    multiprocess.check_same({"a": np.ones(2)}, do="nothing")


@pytest.mark.parametrize(
    "x", [np.ones(3, "bfloat16"), jnp.ones(()), jax.random.key(1), np.zeros(0)]
)
def test_checksums_are_of_values(x):
    assert multiprocess.checksum(x) == multiprocess.checksum(x)
    assert multiprocess.checksum(x) != multiprocess.checksum(np.ones(3))


def test_what_a_loss_is(monkeypatch):
    """Errors of XLA's network alone, and only where there are others."""
    gone = ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer")
    with pytest.raises(ValueError, match="Gloo"), multiprocess.together("start again"):
        raise gone
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ProcessLost, match="start again"), multiprocess.together("start again"):
        raise gone
    for other in (ValueError("shapes"), WrongValue("Gloo ")):
        with pytest.raises(type(other)), multiprocess.together("start again"):
            raise other
