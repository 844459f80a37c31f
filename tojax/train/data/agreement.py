"""What processes that train together must agree on: one mesh of all, and their shares of the rows.

Without these checks a job of several processes would go on, with wrong numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, Sharding

from tojax import multiprocess, trees, warn_once
from tojax.errors import SameRows, WrongArguments, WrongBatch
from tojax.parallel import batches


def check_mesh(params: Any) -> None:
    """Raises where several processes would each train a model of their own.

    Example:
      >>> check_mesh({"weight": np.ones(2)})
    """
    mesh = batches.mesh_of(params)
    held = set() if mesh is None else {d.process_index for d in mesh.devices.flat}
    if jax.process_count() > 1 and len(held) < jax.process_count():
        raise WrongArguments(
            f"the model lies in {max(len(held), 1)} of {jax.process_count()} processes",
            where=f"process {jax.process_index()}",
            why="each process would train a model of its own, in the same folder",
            do='put it on a mesh of all devices: tojax.parallel.shard(model, mesh, "fsdp")',
        )


def placed(batch: Any, mesh: Mesh, first: bool) -> Any:
    """The batch on the mesh, see ``tojax.parallel.batches.place``; of several processes the first
    one is compared.

    Example:
      >>> mesh = jax.make_mesh((jax.device_count(),), ("data",))
      >>> placed(np.ones(8), mesh, first=True).sharding.spec
      P('data',)
    """
    if first and mesh.is_multi_process:
        compare(batch, mesh)
    return batches.place(batch, mesh)


def divided(fed: Iterator, mesh: Mesh, sharding: Sharding | None = None) -> Iterator:
    """(position, batch on the mesh) of several processes, each of which feeds its own rows."""
    known = None
    for position, batch in fed:
        if known is None:
            compare(batch, mesh)
        if sharding is not None:
            batch = jax.tree.map(lambda x: _given(x, sharding), batch)
        known = batches.place(batch, mesh)
        yield position, known


def _given(x: Any, sharding: Sharding) -> Any:
    """This process's part of an array in the place that the user gives."""
    if not trees.is_array(x) or not multiprocess.is_local(x):
        return x
    return jax.make_array_from_process_local_data(sharding, np.array(x))


def compare(batch: Any, mesh: Mesh) -> None:
    """Warns, or raises WrongBatch, where the parts of a batch cannot be what was meant."""
    leaves = [x for x in jax.tree.leaves(batch) if multiprocess.is_local(x)]
    if not leaves:
        return  # it lies on the mesh already
    share, count, _ = batches.shares(mesh)
    kinds = str([(np.shape(x), str(jax.typeof(x).dtype)) for x in leaves])
    sums = np.array([multiprocess.checksum(np.asarray(x)) for x in leaves], np.uint32)
    mine = [share, multiprocess.checksum(np.frombuffer(kinds.encode(), np.uint8))]
    numbers = sums[[np.ndim(x) == 0 for x in leaves]]
    mine += map(multiprocess.checksum, (sums, numbers))
    told = multiprocess.gathered(np.array(mine, np.uint32))
    where = f"process {jax.process_index()} has {kinds[:200]}"
    if len({*told[:, 1].tolist()}) > 1:
        raise WrongBatch(
            "processes give batches of different shapes or dtypes",
            where=where,
            why="each gives an equal part of the rows of one batch",
            do="leave out what does not fill a batch, as tojax.train.Batches does",
        )
    if len({*told[:, 3].tolist()}) > 1:
        raise WrongBatch(
            "processes give different numbers",
            where=where,
            why="what has no rows is the same for the rows of all of them",
            do="give one number in all processes, or an array of one for each row",
        )
    of_share = {(int(who), int(values)) for who, _, values, _ in told}
    if len(of_share) > count:
        raise WrongBatch(
            "processes that must give the same rows give different ones",
            where=f"mesh {dict(mesh.shape)}; {where}",
            why=f"its devices divide rows among {count} processes of {jax.process_count()}",
            do="give both the same rows, or a mesh whose data axis goes through all processes",
        )
    if count > 1 and len({values for _, values in of_share}) == 1:
        warn_once.warn(
            f"all {jax.process_count()} processes give the same rows: each shall give its own part "
            "of a batch, as tojax.train.Batches, Shuffle and grain's ShardByJaxProcess do",
            SameRows,
        )
