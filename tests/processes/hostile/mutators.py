"""Changes of files: bytes, JSON, safetensors' headers, GGUF's fields, zip archives."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Change = Callable[[Path, random.Random], object]
MARKER = "marker"  # the file that hostile code would write, in the folder OUTSIDE
OUTSIDE = "outside"  # beside the mutant's folder
HUGE = (2**31, 2**32 - 1, 2**63, 2**64 - 1)


@dataclass(frozen=True)
class Mutant:
    """A file of a format with a change.

    Attributes:
      name: unique, and stable.
      format: a key of FORMATS.
      change: changes the files of a folder.
      refused: only an error is right; else also the original's values, and those that the library
        of the format reads out of the changed file.
    """

    name: str
    format: str
    change: Change
    refused: bool = False


def files_in(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(x for x in folder.rglob(pattern) if x.is_file() and x.name != "README.md")


def largest_or_any(folder: Path, pattern: str, rng: random.Random) -> Path:
    """Returns a file by chance; small ones as often as large ones."""
    return rng.choice([x for x in files_in(folder, pattern) if x.stat().st_size])


def flip(pattern: str = "*", start: float = 0.0, end: float = 1.0, count: int = 1) -> Change:
    """Flips bits of bytes in a part of a file."""

    def change(folder: Path, rng: random.Random) -> None:
        file = largest_or_any(folder, pattern, rng)
        data = bytearray(file.read_bytes())
        for _ in range(count):
            place = rng.randrange(int(start * len(data)), max(int(end * len(data)), 1))
            data[place] ^= rng.choice([1 << rng.randrange(8), rng.randrange(1, 256)])
        file.write_bytes(data)

    return change


def cut(pattern: str = "*") -> Change:
    """Cuts a file off."""

    def change(folder: Path, rng: random.Random) -> None:
        file = largest_or_any(folder, pattern, rng)
        data = file.read_bytes()
        size = rng.choice([0, 1, 7, 8, 9, rng.randrange(len(data)), rng.randrange(len(data))])
        file.write_bytes(data[: min(size, len(data) - 1)])

    return change


def splice(pattern: str = "*") -> Change:
    """Repeats, removes or moves a run of bytes, or puts others there."""

    def change(folder: Path, rng: random.Random) -> None:
        file = largest_or_any(folder, pattern, rng)
        data = file.read_bytes()
        start = rng.randrange(len(data))
        end = min(len(data), start + rng.choice([1, 4, 8, 64]))
        run = data[start:end]
        noise = rng.randbytes(len(run))
        middle = rng.choice([run * 2, b"", noise, b"\0" * len(run), b"\xff" * len(run)])
        file.write_bytes(data[:start] + middle + data[end:])

    return change


def append(pattern: str = "*") -> Change:
    """Adds bytes to the end of a file."""

    def change(folder: Path, rng: random.Random) -> None:
        file = largest_or_any(folder, pattern, rng)
        file.write_bytes(file.read_bytes() + rng.randbytes(rng.choice([1, 8, 100])))

    return change


def lose(pattern: str, instead: str = "nothing") -> Change:
    """Removes a file; puts a folder, a broken link, a link to itself or a pipe in its place."""

    def change(folder: Path, rng: random.Random) -> None:
        file = largest_or_any(folder, pattern, rng)
        file.unlink()
        if instead == "folder":
            file.mkdir()
        elif instead == "pipe":
            os.mkfifo(file)
        elif instead != "nothing":
            file.symlink_to(
                {"loop": file.name, "dangling": "nowhere", "zero": "/dev/zero"}[instead]
            )

    return change


def content(name: str, data: bytes | str) -> Change:
    """Puts other content into a file."""
    data = data.encode() if isinstance(data, str) else data
    return lambda folder, rng: (folder / name).write_bytes(data)


def edit(name: str, function: Callable[[Any, Path], Any]) -> Change:
    """Changes a JSON file by a function of (content, folder), which changes or replaces it."""

    def change(folder: Path, rng: random.Random) -> None:
        (file,) = files_in(folder, name)
        old = json.loads(file.read_bytes())
        new = function(old, folder)
        file.write_text(json.dumps(old if new is None else new))

    return change


def put(name: str, path: str, value: object) -> Change:
    """Sets an entry, by its path "a.b", of a JSON file; {outside} becomes that folder."""

    def function(entries: Any, folder: Path) -> None:
        *parents, last = path.split(".")
        for step in parents:
            entries = entries[int(step) if isinstance(entries, list) else step]
        text = json.dumps(value).replace("{outside}", str(folder.parent / OUTSIDE))
        entries[int(last) if isinstance(entries, list) else last] = json.loads(text)

    return edit(name, function)


def remove(name: str, key: str) -> Change:
    """Removes an entry of a JSON file."""
    return edit(name, lambda entries, folder: {k: v for k, v in entries.items() if k != key})


class Payload:
    """An object whose pickle writes the marker when it is loaded."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def pickled(folder: Path, name: str) -> None:
    """Writes a hostile pickle."""
    (folder / name).write_bytes(pickle.dumps(Payload(folder.parent / OUTSIDE / MARKER)))


def torch_pickled(folder: Path, name: str) -> None:
    """Writes a hostile pickle in torch's archive."""
    import torch

    torch.save({"a": Payload(folder.parent / OUTSIDE / MARKER)}, folder / name)


# Safetensors


def header(function: Callable[[dict[str, Any]], Any], name: str = "*.safetensors") -> Change:
    """Changes the header of a safetensors file by a function, which may return its text."""

    def change(folder: Path, rng: random.Random) -> None:
        file = largest_or_any(folder, name, rng)
        data = file.read_bytes()
        length = int.from_bytes(data[:8], "little")
        entries = json.loads(data[8 : 8 + length])
        new = function(entries)
        text = new if isinstance(new, str) else json.dumps(entries if new is None else new)
        file.write_bytes(
            len(text.encode()).to_bytes(8, "little") + text.encode() + data[8 + length :]
        )

    return change


def entry(field: str, value: object, name: str = "*.safetensors") -> Change:
    """Sets a field of the last tensor in a header."""

    def function(entries: dict[str, Any]) -> None:
        entries[max(k for k in entries if k != "__metadata__")][field] = value

    return header(function, name)


def length_field(value: int, name: str = "*.safetensors") -> Change:
    """Sets the length of the header."""

    def change(folder: Path, rng: random.Random) -> None:
        file = largest_or_any(folder, name, rng)
        file.write_bytes(value.to_bytes(8, "little") + file.read_bytes()[8:])

    return change


# GGUF


def number(after: bytes, skip: int, kind: str, value: float, name: str = "*.gguf") -> Change:
    """Sets a number that stands a few bytes after others."""

    def change(folder: Path, rng: random.Random) -> None:
        (file,) = files_in(folder, name)
        data = bytearray(file.read_bytes())
        struct.pack_into(f"<{kind}", data, data.index(after) + len(after) + skip, value)
        file.write_bytes(data)

    return change


def replaced(old: bytes, new: bytes, name: str = "*") -> Change:
    """Replaces bytes by others."""

    def change(folder: Path, rng: random.Random) -> None:
        file = next(x for x in files_in(folder, name) if old in x.read_bytes())
        file.write_bytes(file.read_bytes().replace(old, new))

    return change


# Archives


def archive(
    changes: Mapping[str, Callable[[bytes, Path], bytes] | None],
    extra: Mapping[str, bytes] = {},
    name: str = "*.keras",
) -> Change:
    """Rewrites the entries of a zip archive, whose checksums are right again; None removes one."""

    def change(folder: Path, rng: random.Random) -> None:
        (file,) = files_in(folder, name)
        with zipfile.ZipFile(file) as opened:
            entries = {x: opened.read(x) for x in opened.namelist()}
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
            for key, data in entries.items():
                if (function := changes.get(key, lambda data, folder: data)) is not None:
                    opened.writestr(key, function(data, folder))
            for key, data in extra.items():
                opened.writestr(key, data)

    return change


def bomb(key: str, size: int, name: str = "*.keras") -> Change:
    """Adds that many spaces to the end of an entry."""

    def change(folder: Path, rng: random.Random) -> None:
        (file,) = files_in(folder, name)
        with zipfile.ZipFile(file) as opened:
            entries = {x: opened.read(x) for x in opened.namelist()}
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as opened:
            for entry, data in entries.items():
                with opened.open(entry, "w", force_zip64=True) as target:
                    target.write(data)
                    for _ in range(size // 2**20 if entry == key else 0):
                        target.write(b" " * 2**20)

    return change
