"""Initialization of a process as one of a job's, wherever the job runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import jax

from anyjax.errors import WrongArguments

# Environment variables in which launchers write the number of processes; JAX reads some of them.
COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "WORLD_SIZE", "JAX_NUM_PROCESSES")


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    heartbeat_timeout_seconds: int = 30,
    **options: Any,
) -> None:
    """Calls ``jax.distributed.initialize`` in a script that also runs alone.

    Call it before anything that asks JAX for devices. JAX finds the other processes by itself on
    TPU pods, under Slurm, Open MPI and ``python -m anyjax.parallel.launch``, and on Kubernetes
    where its Python client is installed; elsewhere the first three arguments say where they are.
    Without a job this process is alone, and nothing is done.

    A killed process is noticed after ``heartbeat_timeout_seconds``; then JAX ends the others, with
    a message that names it. A process with an uncaught exception ends at once; by itself JAX would
    wait for the others.

    Args:
      coordinator_address: host and port on which process 0 listens.
      num_processes: the number of processes.
      process_id: the number of this process, from 0 on.
      heartbeat_timeout_seconds: seconds of silence after which a process counts as dead.
      **options: further arguments of ``jax.distributed.initialize``.

    Raises:
      WrongArguments: the environment names several processes, and JAX finds none of them.

    Example:
      >>> import subprocess, sys
      >>> script = "import jax, anyjax; anyjax.parallel.initialize(); print(jax.process_count())"
      >>> subprocess.run([sys.executable, "-c", script], capture_output=True).stdout.split()
      [b'1']
    """
    if jax.distributed.is_initialized():
        return
    job = (coordinator_address, num_processes, process_id)
    try:
        jax.distributed.initialize(
            *job, heartbeat_timeout_seconds=heartbeat_timeout_seconds, **options
        )
    except ValueError as error:  # JAX finds no job
        if job != (None, None, None) or "should be defined" not in str(error):
            raise
        _check_alone()
        return
    if jax.distributed.is_initialized() and jax.process_count() > 1:
        sys.excepthook = _exit_hook(sys.excepthook)


def _check_alone() -> None:
    """Raises WrongArguments if there seem to be other processes: each would do all the work."""
    counts = {k: os.environ[k] for k in COUNTS if os.environ.get(k, "1") not in ("", "1")}
    if "JOB_COMPLETION_INDEX" in os.environ:
        counts["JOB_COMPLETION_INDEX"] = os.environ["JOB_COMPLETION_INDEX"]
    if counts:
        raise WrongArguments(
            "the other processes of this job are not found",
            where=", ".join(f"{k}={v}" for k, v in counts.items()),
            why="the environment speaks of several, and not of where process 0 is",
            do="under Slurm start it with srun; on Kubernetes pip install jax[k8s]; elsewhere give "
            "coordinator_address, num_processes and process_id",
        )


def _exit_hook(show: Callable) -> Any:
    """Returns a hook for uncaught exceptions that shows them and ends the process at once."""

    def hook(kind, error, trace):
        show(kind, error, trace)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130 if issubclass(kind, KeyboardInterrupt) else 1)

    return hook
