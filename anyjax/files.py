"""Refuses files that are not what their name says."""

from __future__ import annotations

import zipfile
from pathlib import Path

from anyjax.errors import BadCheckpoint

POINTER = b"version https://git-lfs"
SMALL = 2**24  # bytes that an entry may unpack to, however small it is
RATIO = 100  # between the sizes of an entry; weights hardly compress


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


def refuse_inflated(file: Path) -> None:
    """Raises BadCheckpoint for a zip archive that unpacks to far more than it is.

    Raises:
      zipfile.BadZipFile: the file is damaged.
    """
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.file_size > max(SMALL, RATIO * entry.compress_size):
                raise BadCheckpoint(
                    f"{file.name} unpacks to far more than it is",
                    where=str(file),
                    why=f"{entry.filename} is {entry.file_size} bytes, packed into "
                    f"{entry.compress_size}",
                    do="get the file from whom you trust; weights hardly compress",
                )
