"""Files that TensorFlow or Keras is to read, looked at first: they read pipes for ever, unpack any
archive, and build any layer.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from anyjax.errors import BadCheckpoint
from anyjax.files import refuse_inflated

# Each of so many adds a weight to the file.
SIZES = {"units", "filters", "input_dim", "output_dim", "num_heads", "key_dim", "depth_multiplier"}


def check_regular(*files: Path) -> None:
    """Raises BadCheckpoint for pipes and devices."""
    for file in files:
        if file.exists() and not file.is_file() and not file.is_dir():
            raise _damaged(file, "it is a pipe, a socket or a device")


def check_archive(file: Path) -> None:
    """Raises BadCheckpoint for an archive that unpacks to far more than it is, or whose
    layers are larger than its weights; other files are left to Keras.
    """
    check_regular(file)
    if file.suffix == ".h5" and file.is_file():
        _check_layers(file, _config_of_h5(file), file.stat().st_size)
    if not zipfile.is_zipfile(file):
        return
    try:
        refuse_inflated(file)
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            config = json.loads(archive.read("config.json"))
            _check_layers(file, config, sum(entry.file_size for entry in entries))
    except BadCheckpoint:
        raise
    except (
        KeyError, OSError, RuntimeError, ValueError, RecursionError, NotImplementedError,
        zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        raise _damaged(file, " ".join(f"{type(error).__name__}: {error}".split())[:300]) from error


def _config_of_h5(file: Path) -> object:
    """Returns the config inside of a HDF5 file, None where Keras is to say what is wrong."""
    import h5py

    try:
        with h5py.File(file) as opened:
            return json.loads(opened.attrs["model_config"])
    except (OSError, KeyError, ValueError, TypeError, RuntimeError):  # RecursionError, too
        return None


def _check_layers(file: Path, config: object, size: int) -> None:
    if large := next(_larger(config, size), None):
        raise _damaged(file, f"its weights are fewer than {large}")


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
