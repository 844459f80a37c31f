"""What ``model.json`` has to hold, entry by entry."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax

TEXT = (str,)
# The entries and their types; those of lists and dicts have elements of the second ones.
ENTRIES: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    "format": ((int,), ()),
    "jax": (TEXT, ()),
    "platforms": ((list,), TEXT),
    "sha256": ((dict,), TEXT),
    "name": (TEXT, ()),
    "framework": (TEXT, ()),
    "positional": ((list,), TEXT),
    "training": ((list,), (bool,)),
    "calls": ((list,), (dict,)),
    "programs": ((dict,), (dict,)),
}
CALL: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    "inputs": ((dict,), (str, int, float, bool, type(None))),
    "rng": ((str, type(None)), ()),
    "output": ((dict,), ()),
    "missed": ((list,), TEXT),
    "known": ((dict,), ()),
}


def read_about(file: Path) -> dict[str, Any]:
    """The entries of ``model.json``.

    Raises:
      OSError: it is no regular file, or cannot be read.
      ValueError: it is no JSON, or an entry is missing or of another type.
    """
    if file.exists() and not file.is_file():
        raise OSError(f"{file.name} is no regular file")
    try:
        about = json.loads(file.read_bytes())
    except RecursionError:
        raise ValueError(f"{file.name} is no JSON that can be read") from None
    if not isinstance(about, dict) or type(about.get("format")) is not int:
        raise ValueError(f"{file.name} names no format")
    return about


def check_about(about: dict[str, Any]) -> None:
    """Raises ValueError where an entry is missing or of another type, or names no plain file."""
    _check(about, ENTRIES, "")
    for i, call in enumerate(about["calls"]):
        _check(call, CALL, f"calls[{i}].")
        if not all(isinstance(x, str) for x in call.get("constraints") or []):
            raise ValueError(f"calls[{i}].constraints is {call['constraints']!r}")
        _check_output(call["output"], f"calls[{i}].output")
    for name in about["sha256"]:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"sha256 names the file {name!r}, which is in another folder")
    needed = [f"call-{i}.jax" for i in range(len(about["calls"]))]
    needed += [f"{name}.jax" for name in about["programs"]]
    for name in (*needed, "params.safetensors", "state.safetensors"):
        if name not in about["sha256"]:
            raise ValueError(f"sha256 does not name {name}")
    if not about["platforms"]:
        raise ValueError("platforms is empty")


def check_call(call: dict[str, Any], program: Any, state: Collection[str]) -> None:
    """Raises ValueError where a call is told to hold what its program or the state has not."""
    flat, *_ = jax.tree.unflatten(program.out_tree, program.out_avals)
    if (most := _arrays(call["output"])) >= len(flat):
        raise ValueError(f"an output is array {most} of a program that gives {len(flat)}")
    if unknown := sorted({*call["known"]} - {*state}):
        raise ValueError(f"known names {unknown[0]}, which the state has not")


def _arrays(told: dict[str, Any]) -> int:
    """The greatest number of an array in the description of an output; -1 for none."""
    ((kind, value),) = told.items()
    if kind in ("array", "value"):
        return value if kind == "array" else -1
    return max((_arrays(x[1] if kind in ("dict", "object") else x) for x in value), default=-1)


def _check(told: dict[str, Any], entries: dict, place: str) -> None:
    for name, (kinds, inner) in entries.items():
        value = told.get(name)
        if name not in told or not isinstance(value, kinds):
            raise ValueError(f"{place}{name} is {value!r}"[:200])
        each = value.values() if isinstance(value, dict) else value
        if inner and not all(isinstance(x, inner) for x in each):
            raise ValueError(f"{place}{name} is {value!r}"[:200])


def _check_output(told: Any, place: str) -> None:
    """Raises ValueError for what ``calls.join`` cannot put together."""
    single = isinstance(told, dict) and len(told) == 1
    kind, value = next(iter(told.items())) if single else (None, None)
    if kind == "value" or (kind == "array" and type(value) is int and value >= 0):
        return
    if isinstance(value, list):
        pairs = kind in ("dict", "object")
        if kind in ("tuple", "list") or (
            pairs and all(isinstance(x, list) and len(x) == 2 for x in value)
        ):
            for x in value:
                _check_output(x[1] if pairs else x, place)
            return
    raise ValueError(f"{place} is {told!r}"[:200])
