"""Hidden folders beside a target, in which a save is written: locked while their process lives, so
that the next save knows what one that was killed has left.

The lock is the system's own on the folder, which goes with the process and with a rename. Names
hold the machine: on a shared disk another machine's locks may not be seen, and its folders stay.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: nothing is locked there, and nothing swept
    fcntl = None  # type: ignore[assignment]

MACHINE = hashlib.sha256(platform.node().encode()).hexdigest()[:6]


def names(target: Path) -> tuple[Path, Path]:
    """(where the new folder is written, where the old one is put aside)."""
    start = f".{target.name}-{uuid.uuid4().hex[:8]}-{MACHINE}"
    return target.parent / f"{start}-new", target.parent / f"{start}-old"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Whether this process has the lock of a folder while this lasts."""
    handle = None
    try:
        if fcntl is not None:
            handle = os.open(folder, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = handle is not None
    except OSError:  # somebody else's, gone, or a disk without locks
        held = False
    try:
        yield held
    finally:
        if handle is not None:
            os.close(handle)


@contextlib.contextmanager
def made(folder: Path) -> Iterator[None]:
    """A new folder, locked before it has its name: one that is seen without a lock is left over."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    first = folder.with_name(f"{folder.name}-made")
    first.mkdir()
    with locked(first):
        first.rename(folder)
        yield


def sweep(target: Path) -> None:
    """Removes what saves into this place left that were killed. What one of them had put aside
    comes back where nothing has taken its place.
    """
    pattern = rf"\.{re.escape(target.name)}-[0-9a-f]{{8}}-{MACHINE}-(new|old)"
    try:
        beside = [x for x in target.parent.iterdir() if re.fullmatch(pattern, x.name)]
    except OSError:
        return
    for left in sorted(beside, key=lambda x: x.name.endswith("-new")):  # "-old" before its "-new"
        if left.is_symlink() or not left.is_dir():
            continue
        new = left.with_name(left.name[:-3] + "new")
        if left == new:
            _remove(left)
        elif not new.exists() or _is_free(new):
            _put_back(left, target)


def _is_free(folder: Path) -> bool:
    with locked(folder) as ours:
        return ours


def _remove(folder: Path) -> None:
    with locked(folder) as ours:
        if ours:
            shutil.rmtree(folder, ignore_errors=True)


def _put_back(old: Path, target: Path) -> None:
    if target.exists():
        _remove(old)
        return
    with locked(old) as ours, contextlib.suppress(OSError):
        if ours:
            old.rename(target)
