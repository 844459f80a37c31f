"""The folder of a saved model: written atomically, and checked before it is read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Set
from pathlib import Path

from safetensors import SafetensorError

from anyjax.errors import AnyjaxError, BadCheckpoint, NotWritten, WrongArguments
from anyjax.saved.checksum import Json
from anyjax.saved.metadata import text_of
from anyjax.saved.scratch import locked, new_folder, scratch_names, sweep

FORMAT = 4
ABOUT = "model.json"


@contextlib.contextmanager
def whole(folder: str | os.PathLike[str], mark: str) -> Iterator[Path]:
    """Gives a scratch folder, which replaces ``folder`` at the end of the block.

    Raises:
      WrongArguments: ``folder`` holds something else than an earlier save, which has a file
        ``mark``.
      NotWritten: the system refuses to write, or the disk is full.
    """
    target = Path(folder).expanduser()
    if target.is_symlink():  # replaces the folder that the link points to, not the link
        target = target.resolve()
    sweep(target)
    check_free(target, mark)
    scratch, old = scratch_names(target)
    try:
        with new_folder(scratch), locked(target):  # the lock stays while the target is moved away
            yield scratch
            if target.exists():
                target.rename(old)
            scratch.rename(target)
            shutil.rmtree(old, ignore_errors=True)
    except AnyjaxError:
        raise
    except (OSError, SafetensorError) as error:
        raise NotWritten.of(target, error, "; what was there before is still there") from error
    finally:
        if old.exists() and not target.exists():  # interrupted between the renames
            old.rename(target)
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def check_free(target: Path, mark: str) -> None:
    """Raises WrongArguments for a file, and for a folder with files but without ``mark``."""
    if target.is_file() or (
        target.exists() and not (target / mark).exists() and any(target.iterdir())
    ):
        raise WrongArguments(
            f"{target} holds something else", do="give a new folder, or one that save wrote"
        )


def check_target(folder: str | os.PathLike[str]) -> None:
    """Raises WrongArguments if a save would remove files that no save has written."""
    target = Path(folder).expanduser()
    if not (target / ABOUT).is_file():
        return
    try:
        names = json.loads((target / ABOUT).read_text())["sha256"]
        listed = {ABOUT, *(Path(name).parts[0] for name in names)}
    except (ValueError, KeyError, TypeError, OSError):
        raise WrongArguments(
            f"{target} holds something else: its {ABOUT} is not one of model.save",
            do="give a new folder",
        ) from None
    check_others(target, listed)


def add(folder: str | os.PathLike[str], name: str, write: Callable[[Path], object]) -> None:
    """Adds a subfolder that ``write`` fills, and lists its files with the others."""
    target, subfolder = Path(folder).expanduser(), Path(folder).expanduser() / name
    write(subfolder)
    about = json.loads((target / ABOUT).read_text())
    files = sorted(x for x in subfolder.rglob("*") if x.is_file())
    about["sha256"] |= {x.relative_to(target).as_posix(): digest(x) for x in files}
    scratch = target / f".{ABOUT}.part"
    scratch.write_text(text_of(about))
    scratch.replace(target / ABOUT)


def check_others(target: Path, ours: Set[str]) -> None:
    """Raises WrongArguments if a folder holds other files than these."""
    if foreign := sorted({x.name for x in target.iterdir()} - ours):
        raise WrongArguments(
            f"{target} holds a saved model and something else: {', '.join(foreign[:3])}",
            why="the folder is replaced as a whole, and those would be gone",
            do="give a new folder, or move them away",
        )


def digest(file: Path) -> str:
    """Returns the sha256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def check_format(folder: Path, about: Json) -> None:
    """Raises BadCheckpoint for a folder of another format."""
    if about["format"] != FORMAT:
        raise BadCheckpoint(
            f"{folder} has format {about['format']}, this anyjax reads format {FORMAT}",
            why="another version of anyjax saved it",
            do="save it again with this version, or load it with the one that saved it",
        )


def check_files(folder: Path, about: Json, listing: str = ABOUT) -> None:
    """Raises BadCheckpoint if a file is missing or was changed; ``listing`` names them."""
    for name, expected in about["sha256"].items():
        if not (folder / name).is_file():
            raise BadCheckpoint(
                f"{folder / name} is missing",
                why=f"{listing} lists it",
                do="copy the folder again, or save the model again",
            )
        if digest(folder / name) != expected:
            raise BadCheckpoint(
                f"{folder / name} is damaged",
                why=f"its sha256 is not the one that {listing} holds",
                do="copy the folder again, or save the model again",
            )
