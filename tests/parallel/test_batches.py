"""Batches on meshes."""

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from tojax.parallel.batches import mesh_of, place


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
