"""Paths as users write them, and files that are not what their name says."""

from __future__ import annotations

import os
from pathlib import Path

from anyjax.errors import BadCheckpoint

POINTER = b"version https://git-lfs"


def expanded(path: str | os.PathLike[str]) -> Path:
    """Returns the path, in the user's home where it begins with ``~``, as shells have it.

    Example:
      >>> expanded("~/model").is_absolute(), str(expanded("model"))
      (True, 'model')
    """
    return Path(path).expanduser()


def refuse_pointer(file: Path) -> None:
    """Raises BadCheckpoint for the few lines that git leaves in the place of a large file."""
    try:
        with file.open("rb") as opened:
            begin = opened.read(len(POINTER))
    except OSError:  # what is missing, or a folder, is told where it is read
        return
    if begin == POINTER:
        raise BadCheckpoint(
            f"{file.name} is a pointer of git-lfs, not the file",
            where=str(file),
            why="git clone leaves it in the file's place where git-lfs is not installed",
            do="run git lfs pull there, or download the file by itself",
        )
