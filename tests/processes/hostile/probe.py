"""A format that does what must not happen, so that the judge is seen to see it."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
from pathlib import Path

import numpy as np

from anyjax.errors import BadCheckpoint


def write(folder: Path) -> None:
    (folder / "word").write_text("same")


def read(folder: Path) -> dict[str, np.ndarray]:
    """Does what the file says."""
    word, outside = (folder / "word").read_text(), folder.parent / "outside"
    if word == "raw":
        raise LookupError("no error of ours")
    if word in ("mute", "refused"):
        lines = {"why": "so", "do": "else"} if word == "refused" else {}
        raise BadCheckpoint("it is none", **lines)
    if word == "executed":
        os.system(f"touch {outside / 'marker'}")
    if word == "outside":
        (outside / "x").write_text("x")
    if word == "import":
        with contextlib.suppress(ImportError):
            importlib.import_module("anyjax_payload")
    if word == "process":
        subprocess.run(["true"])
    if word == "memory":
        return {"sum": np.ones(2**27).sum()[None]}
    if word == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    return {"value": np.arange(3) + (word == "different")}
