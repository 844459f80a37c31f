"""Jobs of several processes on this machine, for tests: forked by multiprocessing's server, which
has the slow imports behind it.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import optax  # noqa: F401  each process would import these by itself
import orbax.checkpoint  # noqa: F401
import torch  # noqa: F401
import transformers.models.llama.modeling_llama  # noqa: F401

import anyjax
from anyjax.parallel.launch import free_port

WAIT = 240
HEARTBEAT = 10


class Job:
    """Processes that run ``work(*args)``; what they print is in ``folder/INDEX.log``.

    A context, so that nothing is left running.
    """

    def __init__(self, folder: Path, work: Callable, count: int, *args: Any, devices: int = 1):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        address, given = f"127.0.0.1:{free_port()}", (count, devices, work, args)
        self.processes = [
            context.Process(target=_run, args=(folder, address, i, *given), daemon=True)
            for i in range(count)
        ]

    def __enter__(self) -> Job:
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *_) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def results(self) -> list[Any]:
        """What each process returned; fails where one did not end well."""
        end = time.monotonic() + WAIT
        for i, process in enumerate(self.processes):
            process.join(max(end - time.monotonic(), 0))
            assert process.exitcode == 0, f"process {i}: {process.exitcode}\n{self.log(i)}"
        paths = [self.folder / f"{i}.pickle" for i in range(len(self.processes))]
        return [pickle.loads(path.read_bytes()) for path in paths]

    def log(self, index: int) -> str:
        """What a process printed."""
        return (self.folder / f"{index}.log").read_text(errors="replace")


def _run(folder: Path, address: str, index: int, count: int, devices: int, work, args) -> None:
    with open(folder / f"{index}.log", "wb", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    jax.config.update("jax_num_cpu_devices", devices)
    anyjax.parallel.initialize(address, count, index, heartbeat_timeout_seconds=HEARTBEAT)
    result = pickle.dumps(work(*args))
    (folder / f"{index}.pickle").write_bytes(result)
    jax.distributed.shutdown()
