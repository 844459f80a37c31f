"""Errors of the file system as one of ours, and Ctrl-C while a checkpoint is written."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tojax.errors import NotWritten
from tojax.multiprocess import gathered, is_loss, leads


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Errors in here say which file or folder cannot be written; tensorstore's are ValueErrors.

    Example:
      >>> from pathlib import Path
      >>> with writing(Path("out")):
      ...     raise OSError("no space left")
      Traceback (most recent call last):
      tojax.errors.NotWritten: out cannot be written
        why:   no space left
        do:    make room or give another folder; the last good checkpoint is still there
    """
    try:
        yield
    except NotWritten:
        raise
    except (OSError, ValueError) as error:
        if is_loss(error):
            raise
        raise NotWritten(
            f"{path} cannot be written",
            why=str(error).splitlines()[0][:300],
            do="make room or give another folder; the last good checkpoint is still there",
        ) from error


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C in here comes at the end; a second one comes at once."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[tuple[int, Any]] = []

    def later(number: int, frame: Any) -> None:
        if came:
            before(number, frame)
        came.append((number, frame))

    signal.signal(signal.SIGINT, later)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        before(*came[0])


def begin(folder: Path) -> None:
    """Makes a folder for checkpoints, without what a run that was killed left half written; of
    several processes the first one does, and the others look whether they see it.

    Raises:
      OSError: it cannot be written to, or is not the same folder in all processes.
    """
    token = int(gathered(np.array([uuid.uuid4().int % 2**32], np.uint32))[0, 0])
    mark, error = folder / f".{token}", None
    try:
        if leads():
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK):
                raise PermissionError("it is read-only")
            for left in folder.glob("*.orbax-checkpoint-tmp*"):
                shutil.rmtree(left, ignore_errors=True)
            mark.touch()
    except OSError as failed:
        error = failed
    gathered([0])  # the mark is there from here on
    if error is None and not mark.exists():
        who = f"process {jax.process_index()}"
        error = FileNotFoundError(f"{who} does not see what process 0 writes: it must be shared")
    others = gathered([error is not None])[:, 0].nonzero()[0].tolist()
    mark.unlink(missing_ok=True) if leads() else None
    if others:
        raise error or FileNotFoundError(f"processes {others} cannot use it")
