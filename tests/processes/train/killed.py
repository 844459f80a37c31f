"""A run in a process of its own, which may be killed: imported once by multiprocessing's
forkserver, so that each process starts within a second.
"""

from __future__ import annotations

import multiprocessing
import resource
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint  # noqa: F401  its import takes longest

from anyjax.errors import NotWritten
from anyjax.train import Batches, fit
from tests.train.nets import begin, rows

STEPS = 24


def run(folder: Path, full_after: int | None = None) -> None:
    """Trains in the folder; in the end the state's bytes, or the error, are in a file there.

    After ``full_after`` steps no file may become larger than 1 kB, as if the disk were full.
    """
    state, step = begin()
    step(state, rows(4))  # compiled before it counts
    options = dict(folder=folder, every=2, keep=2)
    data = Batches(rows(22), 4, key=3)
    (folder / "started").touch()
    if full_after is not None:
        fit(begin()[0], step, data, steps=full_after, **options)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        state = fit(begin()[0], step, data, steps=STEPS, **options)
    except NotWritten as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        (folder / "error").write_text(str(error))
        return
    leaves = jax.tree.leaves((state.model, state.opt_state, state.step))
    (folder / "result").write_bytes(b"".join(np.asarray(x).tobytes() for x in leaves))


def started(folder: Path, **options) -> multiprocessing.process.BaseProcess:
    """A process that runs it."""
    folder.mkdir(exist_ok=True)
    (folder / "started").unlink(missing_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=run, args=(folder,), kwargs=options, daemon=True)
    process.start()
    return process
