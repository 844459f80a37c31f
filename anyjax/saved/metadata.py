"""Checks of ``model.json``, entry by entry."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import jax

from anyjax.saved import dimensions
from anyjax.saved.checksum import Json, check_signature, signed

TEXT = (str,)
# The entries, with their types and the types of the elements of lists and dicts.
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
EXECUTABLES: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    "machine": ((dict,), TEXT),
    "files": ((dict,), TEXT),
}
CALL: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    "inputs": ((dict,), (str, int, float, bool, dict, type(None))),
    "rng": ((str, type(None)), ()),
    "output": ((dict,), ()),
    "missed": ((list,), TEXT),
    "known": ((dict,), ()),
}

# An argument whose values are part of the program.
LAYOUT: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    "array": (TEXT, ()),
    "values": ((list, int, bool), ()),
}


def text_of(about: Json) -> str:
    """Returns the text of ``model.json``, with a checksum of its entries."""
    return json.dumps(signed(about), indent=1)


def read_about(file: Path) -> Json:
    """Reads the entries of ``model.json``.

    Raises:
      OSError: it is no regular file, or cannot be read.
      ValueError: it is no JSON object with a format.
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


def check_about(about: Json) -> None:
    """Raises ValueError if an entry is missing, changed, of another type, or leaves the folder."""
    _check(about, ENTRIES, "")
    for i, call in enumerate(about["calls"]):
        _check(call, CALL, f"calls[{i}].")
        if not all(isinstance(x, str) for x in call.get("constraints") or []):
            raise ValueError(f"calls[{i}].constraints is {call['constraints']!r}")
        _check_output(call["output"], f"calls[{i}].output")
        for entry in call["inputs"].values():
            if isinstance(entry, dict):
                _check(entry, LAYOUT, f"calls[{i}].inputs.")
            elif isinstance(entry, str):
                dimensions.check_array(entry)
        for text in call.get("constraints") or ():
            dimensions.check_size(text)
    for entry in executable_entries(about):
        _check(entry, EXECUTABLES, "executables.")
        chips = f".{entry['chips']}" if "chips" in entry else ""
        for name in entry["files"]:
            if not {f"{name}{chips}.exe", f"{name}.jax"} <= {*about["sha256"]}:
                raise ValueError(f"sha256 does not name the files of executables.files.{name}")
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
    check_signature(about)


def executable_entries(about: Json) -> list[Json]:
    """Returns the entries of compiled programs: one of the machine that saved, or of each slice."""
    entries = about.get("executables", [])
    return entries if isinstance(entries, list) else [entries]


def check_call(call: Json, program: jax.export.Exported, state: Collection[str]) -> None:
    """Raises ValueError if a call refers to arrays that its program or the state lacks."""
    flat, *_ = jax.tree.unflatten(program.out_tree, program.out_avals)
    if (index := _largest_index(call["output"])) >= len(flat):
        raise ValueError(f"an output is array {index} of a program that gives {len(flat)}")
    if unknown := sorted({*call["known"]} - {*state}):
        raise ValueError(f"known names {unknown[0]}, which the state has not")


def _largest_index(description: Json) -> int:
    """Returns the largest index of an array in the description of an output; -1 for none."""
    ((kind, value),) = description.items()
    if kind in ("array", "value"):
        return value if kind == "array" else -1
    children = (x[1] if kind in ("dict", "object") else x for x in value)
    return max(map(_largest_index, children), default=-1)


def _check(about: Json, entries: dict, place: str) -> None:
    for name, (kinds, inner) in entries.items():
        value = about.get(name)
        if name not in about or not isinstance(value, kinds):
            raise ValueError(f"{place}{name} is {value!r}"[:200])
        elements = value.values() if isinstance(value, dict) else value
        if inner and not all(isinstance(x, inner) for x in elements):
            raise ValueError(f"{place}{name} is {value!r}"[:200])


def _check_output(description: object, place: str) -> None:
    """Raises ValueError for a description that ``calls.build_output`` cannot read."""
    kind: object = None
    value: object = None
    if isinstance(description, dict) and len(description) == 1:
        ((kind, value),) = description.items()
    if kind == "value" or (kind == "array" and type(value) is int and value >= 0):
        return
    if isinstance(value, list):
        pairs = kind in ("dict", "object")
        if kind in ("tuple", "list", "counted") or (
            pairs and all(isinstance(x, list) and len(x) == 2 for x in value)
        ):
            for x in value:
                _check_output(x[1] if pairs else x, place)
            return
    raise ValueError(f"{place} is {description!r}"[:200])
