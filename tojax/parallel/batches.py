"""Batches along the data axes of a mesh."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tojax.parallel.axes import batch_axes


def spec_of(x: Any, mesh: Mesh) -> PartitionSpec:
    """The rows of an array over the data axes, if they divide; else all on every device."""
    axes = batch_axes(mesh)
    count = math.prod(mesh.shape[a] for a in axes)
    rows = np.shape(x)[0] if np.ndim(x) else 0
    return PartitionSpec(axes) if axes and rows and rows % count == 0 else PartitionSpec()


def place(batch: Any, mesh: Mesh) -> Any:
    """A batch on the mesh, its rows divided over the data axes; what lies on a mesh already stays.

    Example:
      >>> mesh = jax.make_mesh((jax.device_count(),), ("data",))
      >>> place({"x": np.ones((8, 3), np.float32)}, mesh)["x"].sharding.spec
      P('data',)
    """

    def on(x: Any) -> Any:
        there = isinstance(x, jax.Array) and isinstance(x.sharding, NamedSharding)
        traced = isinstance(x, jax.core.Tracer)
        if there or traced or not isinstance(x, (np.ndarray, jax.Array)):
            return x
        return jax.device_put(x, NamedSharding(mesh, spec_of(x, mesh)))

    return jax.tree.map(on, batch)


def mesh_of(arrays: Any) -> Mesh | None:
    """The mesh that the arrays of a tree lie on."""
    leaves = (x for x in jax.tree.leaves(arrays) if not isinstance(x, jax.core.Tracer))
    places = (getattr(x, "sharding", None) for x in leaves)
    meshes = (s.mesh for s in places if isinstance(s, NamedSharding))
    return next((m for m in meshes if isinstance(m, Mesh)), None)
