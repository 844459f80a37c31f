"""Batches along the data and sequence axes of a mesh."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from anyjax import multiprocess
from anyjax.errors import WrongArguments, WrongBatch
from anyjax.numerics.mesh_axes import batch_axes
from anyjax.parallel.plans.axes import sequence_axis
from anyjax.typing import Output


def spec_of(
    x: ArrayLike | jax.ShapeDtypeStruct, mesh: Mesh | AbstractMesh, length: int | None = None
) -> PartitionSpec:
    """Returns the spec of an array of a batch.

    Rows are divided over the data axes, if they divide; the second dimension over the sequence
    axis, if it has this length.
    """
    axes = batch_axes(mesh)
    count = math.prod(mesh.shape[a] for a in axes)
    shape = np.shape(x)
    rows = axes if axes and shape and shape[0] and shape[0] % count == 0 else None
    if length is None or len(shape) < 2 or shape[1] != length:
        return PartitionSpec() if rows is None else PartitionSpec(rows)
    return PartitionSpec(rows, sequence_axis(mesh))


def specs_of(batch: Any, mesh: Mesh, allow_undivided: bool = False) -> Any:
    """Returns a spec for each array of a batch; a length may be allowed not to divide.

    The length is the second dimension of ids, masks and labels, which are integers ``[rows,
    length]``; in batches without any, of floats ``[rows, length, features]``.

    Raises:
      WrongArguments: the mesh's sequence axis does not divide the length.
    """
    length, axis = length_of(batch), sequence_axis(mesh)
    shards = mesh.shape[axis] if axis else 1
    if not axis or length in (None, 1) or (allow_undivided and length % shards):
        length = None
    elif length % shards:
        raise WrongArguments(
            f"inputs of length {length} do not divide over {shards} devices",
            where=f"mesh {dict(mesh.shape)}, axis {axis!r}",
            why="each device holds as many positions as any other",
            do=f"pad them to {-(-length // shards) * shards}, see anyjax.train.bucket, or use a "
            "mesh without that axis",
        )
    return jax.tree.map(lambda x: spec_of(x, mesh, length), batch)


def length_of(batch: Any) -> int | None:
    """Returns the length of a batch's longest texts; None where it has no texts."""
    is_numeric = lambda x: isinstance(getattr(x, "dtype", None), np.dtype)  # no keys
    arrays = [x for x in jax.tree.leaves(batch) if is_numeric(x)]
    lengths = lambda kinds, ndim: [
        x.shape[1] for x in arrays if x.dtype.kind in kinds and len(x.shape) == ndim
    ]
    return max(lengths("iub", 2) or lengths("fV", 3), default=None)


def place(batch: object, mesh: Mesh, *, whole: bool = False) -> Output:
    """Places a batch on the mesh.

    Rows are divided over the data axes ("data", "fsdp", ...), the length of texts over an axis
    named "sequence" (or "seq", "sp", "context", "cp"), if there is one.

    ``anyjax.train`` and ``generate`` do this by themselves. A model computes where its inputs are:
    each device computes its own positions of a long text, and gathers the keys and values of
    attentions.

    Args:
      batch: a pytree. Arrays on a mesh, and leaves that are no arrays, are not moved.
      mesh: rows that its data axes do not divide are on every device.
      whole: leave a length that does not divide on every device, too.

    Raises:
      WrongArguments: the sequence axis does not divide the length.

    On a mesh of several processes each gives its own rows, and the batch is all of them, in the
    order of their devices on the mesh. If the mesh divides no rows between processes, all give the
    same rows.

    Raises:
      WrongBatch: several processes, and their devices do not divide the rows.

    Example:
      >>> import jax, numpy as np
      >>> mesh = jax.make_mesh((1, jax.device_count()), ("data", "sequence"))
      >>> ids = anyjax.parallel.place(np.ones((2, 64), np.int32), mesh)
      >>> ids.sharding.spec
      P('data', 'sequence')
    """

    def place_array(x: object, spec: PartitionSpec) -> Any:
        is_placed = isinstance(x, jax.Array) and isinstance(x.sharding, NamedSharding)
        traced = isinstance(x, jax.core.Tracer)
        if is_placed or traced or not isinstance(x, (np.ndarray, jax.Array)):
            return x
        if mesh.is_multi_process:
            return _put_process_rows(x, mesh, spec)
        return jax.device_put(x, NamedSharding(mesh, spec))

    return jax.tree.map(place_array, batch, specs_of(batch, mesh, whole))


def _put_process_rows(x: np.ndarray | jax.Array, mesh: Mesh, spec: PartitionSpec) -> jax.Array:
    """Makes an array of all processes' rows from this one's, then divides its length."""
    _, count, shards = shares(mesh)
    axes = batch_axes(mesh) if np.ndim(x) else ()
    sharding = NamedSharding(mesh, PartitionSpec(axes) if axes else PartitionSpec())
    if not axes:
        return multiprocess.put(x, sharding)
    if len(x) % shards or not len(x):
        raise WrongBatch(
            f"{len(x)} rows of process {jax.process_index()} for {shards} devices",
            where=f"mesh {dict(mesh.shape)} of {jax.process_count()} processes",
            why="each process gives its own rows of a batch, and each of its devices as many",
            do=f"give batches of a multiple of {shards * count} rows in all, {shards} in each "
            "process",
        )
    values = np.array(x)  # a copy: a loader may write its next batch there
    shape = (len(values) * count, *values.shape[1:])
    rows = jax.make_array_from_process_local_data(sharding, values, shape)
    if len(spec) < 2:
        return rows
    divided = NamedSharding(mesh, PartitionSpec(axes, *spec[1:]))
    return jax.jit(lambda x: x, out_shardings=divided)(rows)


def shares(mesh: Mesh) -> tuple[int, int, int]:
    """Returns (this process's share of a batch's rows, the number of shares, shards of a share).

    Processes whose devices hold the same rows, as on a mesh for tensor parallelism, have the same
    share; a share is divided over a process's devices.

    Example:
      >>> shares(jax.make_mesh((jax.device_count(),), ("data",)))[:2]
      (0, 1)
    """
    axes = batch_axes(mesh)
    sizes = [mesh.shape[a] for a in axes]
    rows_of: dict[int, set[int]] = {}
    for place, device in np.ndenumerate(mesh.devices):
        at = [place[mesh.axis_names.index(a)] for a in axes]
        row = int(np.ravel_multi_index(at, sizes)) if axes else 0
        rows_of.setdefault(device.process_index, set()).add(row)
    different = sorted({tuple(sorted(rows)) for rows in rows_of.values()})
    mine = tuple(sorted(rows_of.get(jax.process_index(), ())))
    if not mine or sum(map(len, different)) != math.prod(sizes) or len({*map(len, different)}) > 1:
        raise WrongBatch(
            "processes hold rows of a batch unevenly",
            where=f"mesh {dict(mesh.shape)}, process {jax.process_index()} holds {len(mine)} parts",
            why="each gives its own rows, and all give as many",
            do="make the mesh of all devices, with jax.make_mesh, or give arrays that lie on it",
        )
    return different.index(mine), len(different), len(mine)


def mesh_of(arrays: Any) -> Mesh | None:
    """Returns the mesh of a tree's arrays; None without a mesh."""
    leaves = (x for x in jax.tree.leaves(arrays) if not isinstance(x, jax.core.Tracer))
    places = (getattr(x, "sharding", None) for x in leaves)
    meshes = (s.mesh for s in places if isinstance(s, NamedSharding))
    return next((m for m in meshes if isinstance(m, Mesh)), None)
