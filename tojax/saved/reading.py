"""A folder that ``save`` wrote as a model again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
from safetensors import SafetensorError
from safetensors.flax import load_file

from tojax.errors import BadCheckpoint, Unsupported
from tojax.saved.about import check_about, check_call, read_about
from tojax.saved.folder import ABOUT, check_files, check_format
from tojax.saved.source import SavedSource

AGAIN = "save the model again; Hugging Face checkpoints load with tojax.from_pretrained"


def read(
    folder: str | os.PathLike,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array], SavedSource]:
    """(params, state, source) of a folder that ``save`` wrote.

    Raises:
      BadCheckpoint: it is none, of another format, for a newer JAX, or a file is missing, damaged
        or exchanged.
      Unsupported: its programs are for other platforms than this one.
    """
    folder = Path(folder)
    try:
        about = read_about(folder / ABOUT)
        check_format(folder, about)
        check_about(about)
        check_files(folder, about)
        _check_platform(folder, about["platforms"])
        programs = [_program(folder, f"call-{i}.jax", about) for i in range(len(about["calls"]))]
        extras = {
            name: (told, _program(folder, f"{name}.jax", about))
            for name, told in about["programs"].items()
        }
        params, state = (
            load_file(folder / "params.safetensors"),
            load_file(folder / "state.safetensors"),
        )
        for call, program in zip(about["calls"], programs):
            check_call(call, program, state)
        training = tuple(about["training"])
        named = about["framework"], about["name"], about["positional"]
        source = SavedSource(*named, training, about["calls"], programs, extras)
    except (BadCheckpoint, Unsupported):
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise BadCheckpoint(
            f"{folder} is no folder that model.save wrote, or it is damaged",
            why=" ".join(str(error).split())[:200],
            do=AGAIN,
        ) from None
    return params, state, source


def _program(folder: Path, name: str, about: dict[str, Any]) -> Any:
    """One program, if the installed JAX reads it."""
    try:
        program = jax.export.deserialize(bytearray((folder / name).read_bytes()))
        if (newer := _is_newer(program, about)) is None:
            return program
    except NotImplementedError as error:  # of a later form of jax.export's files
        newer = str(error)
    raise BadCheckpoint(
        f"{folder / name} is a program of JAX {about['jax']}, here is JAX {jax.__version__}",
        why=" ".join(newer.split())[:200],
        do=f"install that version: pip install 'jax>={about['jax']}', or save with this one",
    )


def _is_newer(program: Any, about: dict[str, Any]) -> str | None:
    """Why the installed JAX does not run a program, None where it does."""
    version = program.calling_convention_version
    most = jax.export.maximum_supported_calling_convention_version
    if version > most:
        return f"its calling convention is {version}, this JAX knows up to {most}"
    if _numbers(about["jax"]) > _numbers(jax.__version__):
        try:
            program.mlir_module()
        except Exception as error:  # whatever the reader of StableHLO stumbles over
            return f"its StableHLO cannot be read: {error}"
    return None


def _numbers(version: str) -> list[int]:
    return [int(x) for x in version.split(".")[:3] if x.isdigit()]


def _check_platform(folder: Path, platforms: list[str]) -> None:
    """Raises where no program is for the platform that JAX runs on."""
    here = jax.default_backend()
    names = {"cuda", "rocm"} if here == "gpu" else {here}
    if not names & {*platforms}:
        raise Unsupported(
            f"{folder} was saved for {', '.join(platforms)}, JAX runs on {here}",
            why="a program is made for certain platforms",
            do=f"save it again with platforms=(..., {sorted(names)[0]!r}), or choose another one: "
            f"JAX_PLATFORMS={platforms[0]}",
        )
