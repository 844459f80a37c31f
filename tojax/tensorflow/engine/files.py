"""Files that TensorFlow or Keras is to read, looked at first: they read pipes for ever, unpack any
archive, and build any layer.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from tojax.errors import BadCheckpoint

SMALL = 2**24  # bytes that an entry may unpack to, however small it is
RATIO = 100  # between the sizes of an entry; Keras itself does not compress
# Each of so many adds a weight to the file.
SIZES = {"units", "filters", "input_dim", "output_dim", "num_heads", "key_dim", "depth_multiplier"}


def check_regular(*files: Path) -> None:
    """Raises BadCheckpoint for pipes and devices."""
    for file in files:
        if file.exists() and not file.is_file() and not file.is_dir():
            raise _damaged(file, "it is a pipe, a socket or a device")


def check_archive(file: Path) -> None:
    """Raises BadCheckpoint for a .keras archive that unpacks to far more than it is, or whose layers
    are larger than its weights; other files and damaged ones are left to Keras.
    """
    check_regular(file)
    if not zipfile.is_zipfile(file):
        return
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            for entry in entries:
                if entry.file_size > max(SMALL, RATIO * entry.compress_size):
                    why = f"{entry.filename} is {entry.file_size} bytes, packed into "
                    raise _damaged(file, f"{why}{entry.compress_size}")
            config = json.loads(archive.read("config.json"))
            size = sum(entry.file_size for entry in entries)
            if large := next(_larger(config, size), None):
                raise _damaged(file, f"its weights are fewer than {large}")
    except (
        KeyError, OSError, RuntimeError, ValueError, RecursionError, NotImplementedError,
        zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        if isinstance(error, BadCheckpoint):
            raise
        raise _damaged(file, " ".join(f"{type(error).__name__}: {error}".split())[:300]) from error


def _larger(config: object, size: int) -> Iterator[str]:
    """Yields sizes of layers that are larger than all of the file."""
    items = enumerate(config) if isinstance(config, list) else ()
    for name, value in config.items() if isinstance(config, dict) else items:
        if name in SIZES and isinstance(value, int) and value > size:
            yield f"{name} = {value}"[:80]
        yield from _larger(value, size)


def _damaged(file: Path, why: str) -> BadCheckpoint:
    return BadCheckpoint(
        f"{file} cannot be read",
        why=why,
        do="copy the file again, or save the model again",
    )
