"""Folders of checkpoints: write errors as NotWritten, Ctrl-C during a write, a shared folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import jax
import numpy as np

from anyjax.errors import NotWritten
from anyjax.multiprocess import gathered, is_loss, leads


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises file system errors of the block as NotWritten; tensorstore's are ValueErrors.

    Example:
      >>> from pathlib import Path
      >>> with writing(Path("out")):
      ...     raise OSError("no space left")
      Traceback (most recent call last):
      anyjax.errors.NotWritten: out cannot be written
        why:   no space left
        do:    look at the path and its permissions, or write elsewhere; the last checkpoint is good
        see:   anyjax explain NotWritten
    """
    try:
        yield
    except NotWritten:
        raise
    except (OSError, ValueError) as error:
        if is_loss(error):
            raise
        raise NotWritten.of(path, error, "; the last checkpoint is good") from error


@contextlib.contextmanager
def deferring_interrupts() -> Iterator[None]:
    """Delays Ctrl-C to the end of the block; a second one is raised at once."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    interrupts: list[tuple[int, FrameType | None]] = []

    def delay(number: int, frame: FrameType | None) -> None:
        if interrupts:
            handler(number, frame)
        interrupts.append((number, frame))

    signal.signal(signal.SIGINT, delay)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if interrupts:
        handler(*interrupts[0])


def prepare_folder(folder: Path) -> None:
    """Makes a folder for checkpoints, and removes half-written ones of a killed run. The first
    process does; the others check that they see the folder.

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
            for unfinished in folder.glob("*.orbax-checkpoint-tmp*"):
                shutil.rmtree(unfinished, ignore_errors=True)
            mark.touch()
    except OSError as failed:
        error = failed
    gathered([0])  # the mark is there from here on
    if error is None and not mark.exists():
        who = f"process {jax.process_index()}"
        error = FileNotFoundError(f"{who} does not see what process 0 writes: it must be shared")
    failing = gathered([error is not None])[:, 0].nonzero()[0].tolist()
    mark.unlink(missing_ok=True) if leads() else None
    if failing:
        raise error or FileNotFoundError(f"processes {failing} cannot use it")
