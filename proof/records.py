"""Results as CSV files: rows by name, written whole, by several processes in turns."""

from __future__ import annotations

import csv
import fcntl
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
# Variables that change what a command measures.
VARIABLES = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")

Row = dict[str, str]


def read(path: Path) -> list[Row]:
    """Returns the rows of a file, none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(f".{os.getpid()}")
    with scratch.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    scratch.replace(path)


def update(path: Path, columns: Sequence[str], change: Callable[[list[Row]], list[Row]]) -> None:
    """Reads the rows, changes them and writes them, one process at a time."""
    with _locked(path):
        write(path, columns, change(read(path)))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def versions(*packages: str) -> str:
    """Returns the versions of these packages and of Python, in one cell."""
    parts = [f"{name} {metadata.version(name).partition('+')[0]}" for name in packages]
    return ", ".join([*parts, f"python {platform.python_version()}"])


def portable(text: str) -> str:
    """Returns a text in one line and without the folders of this machine."""
    for folder in (f"{ROOT}/", f"{tempfile.gettempdir()}/"):
        text = text.replace(folder, "")
    return " ".join(re.sub(r"(/[\w.+-]+)+/site-packages/", "", text).split())


def command(text: str) -> str:
    """Returns a command with the variables that it was run with."""
    settings = [f'{k}="{v}"' for k in VARIABLES if (v := os.environ.get(k))]
    return " ".join([*settings, text])
