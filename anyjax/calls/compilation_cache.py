"""JAX's persistent compilation cache in the user's cache folder, for later processes."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any

LARGEST = 2**30  # bytes; then the programs that were not used for longest go


def use_compilation_cache(
    folder: str | os.PathLike[str] | None = None, max_bytes: int = LARGEST
) -> Path:
    """Keeps what XLA compiles in a folder, where later processes find it.

    It is JAX's persistent compilation cache, for all that JAX compiles from now on in this process;
    the command line uses the same folder. Programs that call Python while they run (a streamer, a
    callback) are not kept. Its files are machine code: nobody else may write there.

    Args:
      folder: by default one for this kind of processor in the user's cache folder.
      max_bytes: the size of the folder; what was not used for longest goes first. It needs the
        package filelock, without which the size is not bounded.

    Returns:
      The folder.

    Example:
      >>> import jax, tempfile
      >>> folder = anyjax.use_compilation_cache(tempfile.mkdtemp())
      >>> jax.config.jax_compilation_cache_dir == str(folder)
      True
      >>> jax.config.update("jax_compilation_cache_dir", None)  # no longer
    """
    import jax

    path = default_folder() if folder is None else Path(folder).expanduser()
    for name, value in settings(path, max_bytes).items():
        jax.config.update(name, value)
    return path


def settings(folder: Path, max_bytes: int = LARGEST) -> dict[str, Any]:
    """Returns the options of JAX, by name; in capitals they are environment variables."""
    bounded = importlib.util.find_spec("filelock") is not None
    return {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_compilation_cache_max_size": max_bytes if bounded else -1,
    }


def cache_folder() -> Path:
    """Returns the folder of anyjax in the user's cache folder.

    Example:
      >>> cache_folder().name
      'anyjax'
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anyjax"


def default_folder() -> Path:
    """Returns the folder for programs of this kind of processor: homes may be shared."""
    return cache_folder() / f"programs-{processor()}"


@functools.cache
def processor() -> str:
    """Returns a digest of the processor's features, its name where the system tells none.

    Example:
      >>> processor() == processor()
      True
    """
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    lines = {x for x in text.splitlines() if x.startswith(("flags", "Features", "model name"))}
    described = "".join(sorted(lines)) or platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(described.encode()).hexdigest()[:16]}"
