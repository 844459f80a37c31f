"""Errors of the file system as one of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tojax.errors import NotWritten


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Errors in here say which file or folder cannot be written; tensorstore's are ValueErrors.

    Example:
      >>> from pathlib import Path
      >>> with writing(Path("out")):
      ...     raise OSError("no space left")
      Traceback (most recent call last):
      tojax.errors.NotWritten: out cannot be written
        why:   no space left
        do:    make room or give another folder; the last good checkpoint is still there
    """
    try:
        yield
    except NotWritten:
        raise
    except (OSError, ValueError) as error:
        raise NotWritten(
            f"{path} cannot be written",
            why=str(error).splitlines()[0][:300],
            do="make room or give another folder; the last good checkpoint is still there",
        ) from error
