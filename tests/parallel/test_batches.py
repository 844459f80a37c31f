"""Batches on meshes."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from anyjax.errors import WrongBatch
from anyjax.parallel.batches import mesh_of, place, shares

pytestmark = pytest.mark.sample(every=2)


def test_rows_divide():
    mesh = jax.make_mesh((4, 2), ("data", "model"))
    there = jax.device_put(np.ones(8), NamedSharding(mesh, PartitionSpec("model")))
    batch = {"x": np.ones((8, 3)), "odd": np.ones((6, 3)), "n": 3, "one": np.float32(2), "y": there}
    placed = place(batch, mesh)
    specs = {k: v.sharding.spec for k, v in placed.items() if isinstance(v, jax.Array)}
    assert specs["x"] == PartitionSpec("data") and specs["odd"] == PartitionSpec()
    assert placed["n"] == 3 and placed["y"] is there
    assert mesh_of({"a": np.ones(2), "b": there}) == mesh
    assert mesh_of([np.ones(2), jax.numpy.ones(2)]) is None


def of_processes(processes, *names):
    """What ``shares`` sees of a mesh whose devices belong to these processes."""
    of = np.vectorize(lambda process: SimpleNamespace(process_index=process))(np.array(processes))
    return SimpleNamespace(axis_names=names, shape=dict(zip(names, of.shape)), devices=of)


@pytest.mark.parametrize(
    ("mesh", "want"),
    [
        (of_processes([0, 0, 1, 1], "fsdp"), [(0, 2, 2), (1, 2, 2)]),
        (of_processes([1, 0], "data"), [(1, 2, 1), (0, 2, 1)]),  # the mesh decides
        (of_processes([[0, 0], [1, 1]], "data", "model"), [(0, 2, 1), (1, 2, 1)]),
        (of_processes([[0, 1], [0, 1]], "data", "model"), [(0, 1, 2), (0, 1, 2)]),
        (of_processes([[0, 1], [2, 3]], "data", "model"), [(0, 2, 1)] * 2 + [(1, 2, 1)] * 2),
        (of_processes([0, 1], "model"), [(0, 1, 1), (0, 1, 1)]),
        (of_processes([[[0], [0]], [[1], [1]]], "data", "fsdp", "tp"), [(0, 2, 2), (1, 2, 2)]),
    ],
)
def test_shares_of_processes(mesh, want, monkeypatch):
    """(which, of how many, into how many parts) of the rows."""
    for process, share in enumerate(want):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        assert shares(mesh) == share


def test_uneven_shares():
    for uneven in ([0, 0, 0, 1], [0, 1, 1, 2, 2, 0]):
        with pytest.raises(WrongBatch, match="unevenly"):
            shares(of_processes([uneven, [*uneven[1:], uneven[0]]], "model", "data"))


def test_a_mesh_of_others(monkeypatch):
    monkeypatch.setattr(jax, "process_index", lambda: 2)
    with pytest.raises(WrongBatch, match="process 2 holds 0 parts"):
        shares(of_processes([0, 1], "data"))
