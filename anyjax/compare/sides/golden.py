"""Values of a reference in a folder, for machines that do not have its framework."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from anyjax.compare.side import DROPOUT, Passed, Passes, Values
from anyjax.errors import BadCheckpoint, Unsupported
from anyjax.saved.checksum import check_signature, signed
from anyjax.saved.folder import digest, whole

ABOUT = "golden.json"
PASSES = ("expected", "judge")


def save(folder: str | os.PathLike[str], name: str, passes: Passes, kinds: dict[str, str]) -> None:
    """Writes the reference's values, in its own precision and in 64 bits; see ``saved.folder``."""
    with whole(folder, ABOUT) as scratch:
        masked = [path for path, why in passes.excluded.items() if why == DROPOUT]
        about: dict[str, object] = {"name": name, "kinds": kinds, "masked": masked}
        dtypes: dict[str, list[str]] = {}
        for file in PASSES:
            passed = getattr(passes, file)
            if passed is None:
                continue
            # safetensors' numpy files have no bfloat16; float32 holds the same values
            widen = lambda x: x.astype(np.float32) if x.dtype == ml_dtypes.bfloat16 else x
            arrays = {
                f"{k}|{i}": widen(x) for k, v in passed.values.items() for i, x in enumerate(v)
            }
            save_file(
                {k: np.asarray(x, order="C") for k, x in arrays.items()},
                scratch / f"{file}.safetensors",
            )
            dtypes[file] = [
                f"{k}|{i}|{x.dtype}" for k, v in passed.values.items() for i, x in enumerate(v)
            ]
        sums = {file: digest(scratch / f"{file}.safetensors") for file in dtypes}
        about |= {"arrays": dtypes, "sha256": sums, "fixed": {**passes.expected.fixed}}
        about |= {"dtypes": passes.expected.dtypes, "writable": sorted(passes.expected.writable)}
        if passes.judge is not None:
            about["narrow"] = sorted(passes.judge.narrow)
        (scratch / ABOUT).write_text(json.dumps(signed(about), indent=1))


class GoldenSide:
    """A reference of which only the values of one call are here.

    Raises:
      BadCheckpoint: the folder was not written by ``report.save_golden``, or is damaged.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        try:
            about = json.loads((Path(folder).expanduser() / ABOUT).read_text())
            check_signature(about)
            self.name, self._kinds = f"{about['name']} of {folder}", about["kinds"]
            self.masked = frozenset(about.get("masked", ()))
            dtypes, writable = tuple(about.get("dtypes", ())), frozenset(about.get("writable", ()))
            narrow, fixed = frozenset(about.get("narrow", ())), dict(about.get("fixed", {}))
            arrays, sums = about["arrays"], about.get("sha256", {})
            read = lambda k: _read(
                Path(folder).expanduser() / f"{k}.safetensors", arrays[k], sums.get(k)
            )
            self.passes = {
                k: replace(read(k), narrow=narrow, fixed=fixed, dtypes=dtypes, writable=writable)
                for k in PASSES
                if k in arrays
            }
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise BadCheckpoint(
                f"{folder} holds no golden values that can be read",
                where=str(Path(folder).absolute()),
                why=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
                do="write it again: anyjax.verify(model, ...).save_golden(folder)",
            ) from None

    def kinds(self) -> dict[str, str]:
        """Returns the class of each module, by path."""
        return self._kinds

    def gradients(self, cotangents: list[np.ndarray], wide: bool = False) -> Passed:
        """Raises Unsupported: only values were written."""
        raise Unsupported(
            "gradients beside golden values",
            why="report.save_golden writes the values of a forward pass",
            do="leave gradients=True out, or compare with the original",
        )

    def forward(self, wide: bool = False, forced: Values | None = None) -> Passed:
        """Returns the values that were written."""
        return self.passes["judge" if wide else "expected"]


def _read(file: Path, names: list[str], checksum: str | None) -> Passed:
    if checksum is not None and digest(file) != checksum:
        raise ValueError(f"the sha256 of {file.name} is not the one that {ABOUT} holds")
    arrays, values = load_file(file), dict[str, list[np.ndarray]]()
    for name in names:
        path, number, dtype = name.rsplit("|", 2)
        kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
        values.setdefault(path, []).append(arrays[f"{path}|{number}"].astype(kind))
    return Passed(values)
