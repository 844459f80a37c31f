"""A job of several processes on this machine: ``python -m anyjax.parallel.launch``.

On clusters srun, mpirun, Kubernetes or the TPU's own tools start the processes. This is for one
machine: to try a script on CPUs, or with a process for each GPU.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

GRACE = 3.0  # seconds from SIGTERM, which JAX takes as a notice of preemption, to SIGKILL


def environment(index: int, count: int, port: int, devices: int | None) -> dict[str, str]:
    """Returns the environment variables of process ``index``.

    They are Open MPI's, because JAX reads those: ``jax.distributed.initialize()`` then works in any
    script, and uses one GPU for each process where there are GPUs.

    Example:
      >>> environment(1, 4, 12345, None)["OMPI_COMM_WORLD_RANK"]
      '1'
    """
    address = f"127.0.0.1:{port}"
    variables = {
        "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{address}",
        "OMPI_COMM_WORLD_SIZE": str(count),
        "OMPI_COMM_WORLD_RANK": str(index),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(index),
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_COORDINATOR_BIND_ADDRESS": address,  # not reachable from the network
        "PYTHONUNBUFFERED": "1",
    }
    return variables | ({} if devices is None else {"JAX_NUM_CPU_DEVICES": str(devices)})


def launch(
    command: Sequence[str],
    processes: int,
    devices: int | None = None,
    env: Mapping[str, str] | None = None,
) -> int:
    """Runs a command in several processes, and prints their lines after the process's number.

    If one fails, the others, which would wait for it, are stopped. SIGINT, SIGTERM and SIGHUP are
    passed on.

    Args:
      command: the command.
      processes: the number of processes.
      devices: the number of CPU devices of each, by default JAX's own.
      env: the environment, by default this process's own.

    Returns:
      0, or the exit code of the first process that failed, 128 + n where signal n ended it.

    Example:
      >>> launch([sys.executable, "-c", "raise SystemExit(3)"], 2)
      3
    """
    port, env = free_port(), dict(os.environ if env is None else env)
    running: list[subprocess.Popen] = []
    threads = []
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    previous = {k: v for k, v in handlers.items() if v != signal.SIG_IGN}  # as under nohup
    signals: list[int] = []
    try:
        for number in previous:
            signal.signal(number, lambda number, frame: signals.append(number))
        for index in range(processes):
            process = subprocess.Popen(
                command,
                env=env | environment(index, processes, port, devices),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the terminal's Ctrl-C comes once, from here
            )
            running.append(process)
            threads.append(threading.Thread(target=_copy_lines, args=(process, index), daemon=True))
            threads[-1].start()
        code = _wait(running, signals)
    finally:
        stop(running)
        for number, handler in previous.items():
            signal.signal(number, handler)
    for thread in threads:
        thread.join(GRACE)  # a grandchild may hold the pipe
    return code


def _wait(running: list[subprocess.Popen], signals: list[int]) -> int:
    """Waits until all processes have ended, one has failed, or a signal came; returns the code."""
    while True:
        codes = [process.poll() for process in running]
        if signals:
            number = signals[0]
            _log(f"{signal.Signals(number).name}: handed on to all processes")
            for process in running:
                _signal(process, number)
            _until_ended(running)
            return 128 + number
        failed = [(i, code) for i, code in enumerate(codes) if code]
        if failed:
            # Those that lose a process fail, too: one that a signal ended is the cause.
            index, code = min(failed, key=lambda pair: pair[1] > 0)
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed ({code})"
            still_running = sum(c is None for c in codes)
            _log(
                f"process {index} {how}"
                + (f"; stopping the {still_running} that still run" if still_running else "")
            )
            return 128 - code if code < 0 else code
        if None not in codes:
            return 0
        time.sleep(0.05)


def stop(running: list[subprocess.Popen]) -> None:
    """Ends the processes and their children: SIGTERM, and soon SIGKILL."""
    for process in running:
        _signal(process, signal.SIGTERM)
    _until_ended(running)
    for process in running:
        _signal(process, signal.SIGKILL)
        process.wait()


def _until_ended(running: list[subprocess.Popen]) -> None:
    end = time.monotonic() + GRACE
    while time.monotonic() < end and any(process.poll() is None for process in running):
        time.sleep(0.05)


def _signal(process: subprocess.Popen, number: int) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)


def _copy_lines(process: subprocess.Popen, index: int) -> None:
    """Prints a process's output line by line, so that lines of several do not mix."""
    assert process.stdout is not None, "it is a pipe"
    with process.stdout as lines:
        for line in lines:
            full_line = line if line[-1:] == b"\n" else line + b"\n"
            sys.stdout.buffer.write(b"[%d] %s" % (index, full_line))
            sys.stdout.buffer.flush()


def _log(text: str) -> None:
    print(f"[launch] {text}", file=sys.stderr, flush=True)


def free_port() -> int:
    """Returns a port that nothing listens on.

    Example:
      >>> 0 < free_port() < 65536
      True
    """
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m anyjax.parallel.launch",
        description="Run a Python script in several processes on this machine, as mpirun would.",
    )
    add = parser.add_argument
    add("--processes", "-n", type=int, required=True, help="how many")
    add("--devices", type=int, help="CPU devices of each process")
    add("script", help="a Python script that calls anyjax.parallel.initialize()")
    add("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    options = parser.parse_args(arguments)
    if options.processes < 1:
        parser.error("--processes is 1 at least")
    command = [sys.executable, options.script, *options.arguments]
    return launch(command, options.processes, options.devices)


if __name__ == "__main__":
    raise SystemExit(main())
