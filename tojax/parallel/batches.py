"""Batches along the data axes of a mesh."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tojax import processes
from tojax.errors import WrongBatch
from tojax.parallel.axes import batch_axes


def spec_of(x: Any, mesh: Mesh) -> PartitionSpec:
    """The rows of an array over the data axes, if they divide; else all on every device."""
    axes = batch_axes(mesh)
    count = math.prod(mesh.shape[a] for a in axes)
    rows = np.shape(x)[0] if np.ndim(x) else 0
    return PartitionSpec(axes) if axes and rows and rows % count == 0 else PartitionSpec()


def place(batch: Any, mesh: Mesh) -> Any:
    """A batch on the mesh, its rows divided over the data axes; what lies on a mesh already stays.

    On a mesh of several processes each gives rows of its own, and the batch is all of them: in the
    order of their devices on the mesh. Where the mesh divides no rows between processes, all give
    the same.

    Raises:
      WrongBatch: several processes, and their devices do not divide the rows.

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
        if mesh.is_multi_process:
            return _put(x, mesh)
        return jax.device_put(x, NamedSharding(mesh, spec_of(x, mesh)))

    return jax.tree.map(on, batch)


def _put(x: Any, mesh: Mesh) -> jax.Array:
    """This process's rows in an array of all processes."""
    _, count, own = shares(mesh)
    axes = batch_axes(mesh) if np.ndim(x) else ()
    sharding = NamedSharding(mesh, PartitionSpec(axes) if axes else PartitionSpec())
    if not axes:
        return processes.put(x, sharding)
    if len(x) % own or not len(x):
        raise WrongBatch(
            f"{len(x)} rows of process {jax.process_index()} for {own} devices",
            where=f"mesh {dict(mesh.shape)} of {jax.process_count()} processes",
            why="each process gives its own rows of a batch, and each of its devices as many",
            do=f"give batches of a multiple of {own * count} rows in all, {own} in each process",
        )
    values = np.array(x)  # a copy: a loader may write its next batch there
    shape = (len(values) * count, *values.shape[1:])
    return jax.make_array_from_process_local_data(sharding, values, shape)


def shares(mesh: Mesh) -> tuple[int, int, int]:
    """(which share of a batch's rows this process gives, how many shares there are, into how many
    parts its devices divide that).

    Processes whose devices hold the same rows, as on a mesh for tensor parallelism, share one.

    Example:
      >>> shares(jax.make_mesh((jax.device_count(),), ("data",)))[:2]
      (0, 1)
    """
    axes = batch_axes(mesh)
    sizes = [mesh.shape[a] for a in axes]
    held: dict[int, set[int]] = {}
    for place, device in np.ndenumerate(mesh.devices):
        at = [place[mesh.axis_names.index(a)] for a in axes]
        row = int(np.ravel_multi_index(at, sizes)) if axes else 0
        held.setdefault(device.process_index, set()).add(row)
    different = sorted({tuple(sorted(rows)) for rows in held.values()})
    if sum(map(len, different)) != math.prod(sizes) or len({*map(len, different)}) > 1:
        raise WrongBatch(
            "processes hold rows of a batch unevenly",
            where=f"mesh {dict(mesh.shape)} of {jax.process_count()} processes",
            why="each gives its own rows, and all give as many",
            do="make the mesh with jax.make_mesh, or give arrays that lie on it already",
        )
    mine = tuple(sorted(held.get(jax.process_index(), {0})))
    return different.index(mine), len(different), len(mine)


def mesh_of(arrays: Any) -> Mesh | None:
    """The mesh that the arrays of a tree lie on."""
    leaves = (x for x in jax.tree.leaves(arrays) if not isinstance(x, jax.core.Tracer))
    places = (getattr(x, "sharding", None) for x in leaves)
    meshes = (s.mesh for s in places if isinstance(s, NamedSharding))
    return next((m for m in meshes if isinstance(m, Mesh)), None)
