"""Checks of processes that train together: one mesh of all devices, each process its own rows.

Without these checks a job of several processes would go on, with wrong numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, Sharding

from anyjax import multiprocess, trees, warn_once
from anyjax.errors import SameRows, WrongArguments, WrongBatch
from anyjax.parallel import batches
from anyjax.typing import PyTree


def check_mesh(params: PyTree) -> None:
    """Raises WrongArguments where several processes would each train their own model.

    Example:
      >>> check_mesh({"weight": np.ones(2)})
    """
    mesh = batches.mesh_of(params)
    processes = set() if mesh is None else {d.process_index for d in mesh.devices.flat}
    if jax.process_count() > 1 and len(processes) < jax.process_count():
        raise WrongArguments(
            f"the model lies in {max(len(processes), 1)} of {jax.process_count()} processes",
            where=f"process {jax.process_index()}",
            why="each process would train a model of its own, in the same folder",
            do='put it on a mesh of all devices: anyjax.parallel.shard(model, mesh, "fsdp")',
        )


def place_batch(batch: PyTree, mesh: Mesh, first: bool) -> Any:
    """Returns the batch on the mesh, see ``anyjax.parallel.batches.place``; the first batch is
    compared between processes.

    Example:
      >>> mesh = jax.make_mesh((jax.device_count(),), ("data",))
      >>> place_batch(np.ones(8), mesh, first=True).sharding.spec
      P('data',)
    """
    if first and mesh.is_multi_process:
        check_shares(batch, mesh)
    return batches.place(batch, mesh)


def place_batches(feed: Iterator, mesh: Mesh, sharding: Sharding | None = None) -> Iterator:
    """Yields (position, batch on the mesh); each process feeds its own rows."""
    global_batch = None
    for position, batch in feed:
        if global_batch is None:
            check_shares(batch, mesh)
        if sharding is not None:
            batch = jax.tree.map(lambda x: _from_local_rows(x, sharding), batch)
        global_batch = batches.place(batch, mesh)
        yield position, global_batch


def _from_local_rows(x: object, sharding: Sharding) -> Any:
    """Returns a global array in the user's sharding, from the rows of this process."""
    if not trees.is_array(x) or not multiprocess.is_local(x):
        return x
    return jax.make_array_from_process_local_data(sharding, np.array(x))


def check_shares(batch: PyTree, mesh: Mesh) -> None:
    """Compares what the processes give as one batch.

    Raises:
      WrongBatch: shapes, dtypes, numbers or rows of one share differ.

    Warns:
      SameRows: all processes give the same rows.
    """
    leaves = [x for x in jax.tree.leaves(batch) if multiprocess.is_local(x)]
    if not leaves:
        return  # the batch is on the mesh already
    share, count, _ = batches.shares(mesh)
    described = str([(np.shape(x), str(jax.typeof(x).dtype)) for x in leaves])
    sums = np.array([multiprocess.checksum(np.asarray(x)) for x in leaves], np.uint32)
    report = [share, multiprocess.checksum(np.frombuffer(described.encode(), np.uint8))]
    scalar_sums = sums[[np.ndim(x) == 0 for x in leaves]]
    report += map(multiprocess.checksum, (sums, scalar_sums))
    reports = multiprocess.gathered(np.array(report, np.uint32))
    where = f"process {jax.process_index()} has {described[:200]}"
    if len({*reports[:, 1].tolist()}) > 1:
        raise WrongBatch(
            "processes give batches of different shapes or dtypes",
            where=where,
            why="each gives an equal part of the rows of one batch",
            do="leave out what does not fill a batch, as anyjax.train.Batches does",
        )
    if len({*reports[:, 3].tolist()}) > 1:
        raise WrongBatch(
            "processes give different numbers",
            where=where,
            why="what has no rows is the same for the rows of all of them",
            do="give one number in all processes, or an array of one for each row",
        )
    share_checksums = {(int(who), int(values)) for who, _, values, _ in reports}
    if len(share_checksums) > count:
        raise WrongBatch(
            "processes that must give the same rows give different ones",
            where=f"mesh {dict(mesh.shape)}; {where}",
            why=f"its devices divide rows among {count} processes of {jax.process_count()}",
            do="give both the same rows, or a mesh whose data axis goes through all processes",
        )
    if count > 1 and len({values for _, values in share_checksums}) == 1:
        warn_once.warn(
            f"all {jax.process_count()} processes give the same rows: each shall give its own part "
            "of a batch, as anyjax.train.Batches, Shuffle and grain's ShardByJaxProcess do",
            SameRows,
        )
