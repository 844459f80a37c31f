"""Hidden folders beside a target, in which a save is written. They are locked while their process
lives, so that the next save recognizes the folders of a killed one.

The lock is the system's own on the folder: it ends with the process, and survives a rename. Names
contain the machine: another machine's locks on a shared disk may be invisible, so its folders stay.
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


def scratch_names(target: Path) -> tuple[Path, Path]:
    """Returns paths for (the new folder while it is written, the old one while it is replaced)."""
    start = f".{target.name}-{uuid.uuid4().hex[:8]}-{MACHINE}"
    return target.parent / f"{start}-new", target.parent / f"{start}-old"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Locks a folder inside of the block, and gives whether that succeeded."""
    handle = None
    try:
        if fcntl is not None:
            handle = os.open(folder, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        acquired = handle is not None
    except OSError:  # locked by another process, gone, or a disk without locks
        acquired = False
    try:
        yield acquired
    finally:
        if handle is not None:
            os.close(handle)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Makes a folder that is locked before it gets its name: one without a lock is abandoned."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    first = folder.with_name(f"{folder.name}-made")
    first.mkdir()
    with locked(first):
        first.rename(folder)
        yield


def sweep(target: Path) -> None:
    """Removes folders of killed saves to this target. An old folder that was moved away becomes
    the target again if there is none.
    """
    pattern = rf"\.{re.escape(target.name)}-[0-9a-f]{{8}}-{MACHINE}-(new|old)"
    try:
        folders = [x for x in target.parent.iterdir() if re.fullmatch(pattern, x.name)]
    except OSError:
        return
    for folder in sorted(folders, key=lambda x: x.name.endswith("-new")):  # "-old" before "-new"
        if folder.is_symlink() or not folder.is_dir():
            continue
        new = folder.with_name(folder.name[:-3] + "new")
        if folder == new:
            _remove(folder)
        elif not new.exists() or _is_free(new):
            _put_back(folder, target)


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
