"""This process as one of a job's, wherever the job runs."""

from __future__ import annotations

import os
import sys
from typing import Any

import jax

from tojax.errors import WrongArguments

# What launchers say of the number of processes; JAX looks at some of them, in its own way.
COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "WORLD_SIZE", "JAX_NUM_PROCESSES")


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    heartbeat_timeout_seconds: int = 30,
    **options: Any,
) -> None:
    """``jax.distributed.initialize`` for a script that also runs alone.

    To be called before anything that asks JAX for devices. JAX finds the other processes by itself
    on TPU pods, under Slurm, Open MPI and ``python -m tojax.parallel.launch``, and on Kubernetes
    where its Python client is installed; elsewhere the first three arguments say where they are.
    Where there is no job, this process is alone, and nothing is done.

    A process that is killed is missed after ``heartbeat_timeout_seconds``; then JAX ends the
    others, with a message that names it. One that ends by an exception ends at once, without
    waiting for the others as JAX's own way out does.

    Args:
      coordinator_address: host and port of process 0, where it listens.
      num_processes: how many there are.
      process_id: which one this is, from 0 on.
      heartbeat_timeout_seconds: after how many seconds of silence a process counts as dead.
      **options: more of ``jax.distributed.initialize``'s.

    Raises:
      WrongArguments: the environment speaks of several processes, and JAX finds none of them.

    Example:
      >>> import subprocess, sys
      >>> script = "import jax, tojax; tojax.parallel.initialize(); print(jax.process_count())"
      >>> subprocess.run([sys.executable, "-c", script], capture_output=True).stdout.split()
      [b'1']
    """
    if jax.distributed.is_initialized():
        return
    given = (coordinator_address, num_processes, process_id)
    try:
        jax.distributed.initialize(
            *given, heartbeat_timeout_seconds=heartbeat_timeout_seconds, **options
        )
    except ValueError as error:  # JAX's, where it finds no job
        if given != (None, None, None) or "should be defined" not in str(error):
            raise
        _check_alone()
        return
    if jax.distributed.is_initialized() and jax.process_count() > 1:
        sys.excepthook = _ending(sys.excepthook)


def _check_alone() -> None:
    """Raises where there seem to be others: each would do the whole work."""
    said = {k: os.environ[k] for k in COUNTS if os.environ.get(k, "1") not in ("", "1")}
    if "JOB_COMPLETION_INDEX" in os.environ:
        said["JOB_COMPLETION_INDEX"] = os.environ["JOB_COMPLETION_INDEX"]
    if said:
        raise WrongArguments(
            "the other processes of this job are not found",
            where=", ".join(f"{k}={v}" for k, v in said.items()),
            why="the environment speaks of several, and not of where process 0 is",
            do="under Slurm start it with srun; on Kubernetes pip install jax[k8s]; elsewhere give "
            "coordinator_address, num_processes and process_id",
        )


def _ending(shown: Any) -> Any:
    """What to do with an exception that nobody catches: show it, and go."""

    def hook(kind, error, trace):
        shown(kind, error, trace)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130 if issubclass(kind, KeyboardInterrupt) else 1)

    return hook
