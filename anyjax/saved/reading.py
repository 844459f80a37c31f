"""Reading of a folder that ``save`` wrote."""

from __future__ import annotations

import os
from pathlib import Path

import jax
from safetensors import SafetensorError, safe_open

from anyjax.errors import BadCheckpoint, Unsupported
from anyjax.saved.checksum import Json
from anyjax.saved.executables import read as executables_in
from anyjax.saved.folder import ABOUT, check_files, check_format
from anyjax.saved.metadata import check_about, check_call, executable_entries, read_about
from anyjax.saved.source import SavedSource

SAVE_AGAIN = "save the model again; Hugging Face checkpoints load with anyjax.from_pretrained"


def read(
    folder: str | os.PathLike[str], executables: bool | None = None
) -> tuple[dict[str, jax.Array], dict[str, jax.Array], SavedSource]:
    """Reads (params, state, source) from a folder that ``save`` wrote.

    Raises:
      BadCheckpoint: it is no such folder, of another format or for a newer JAX, or a file is
        missing, damaged or exchanged.
      Unsupported: its programs are for other platforms.
    """
    folder = Path(folder).expanduser()
    if not (folder / ABOUT).exists() and (files := sorted(folder.glob("*.stablehlo"))):
        raise BadCheckpoint(
            f"{folder} holds a program of StableHLO, {files[0].name}, and no {ABOUT}",
            why="its weights are constants of the program: it has no params",
            do=f"anyjax.from_stablehlo({str(files[0])!r})",
        )
    try:
        about = read_about(folder / ABOUT)
        check_format(folder, about)
        check_about(about)
        check_files(folder, about)
        _check_platform(folder, about["platforms"])
        programs = [_program(folder, f"call-{i}.jax", about) for i in range(len(about["calls"]))]
        extras = {
            name: (description, _program(folder, f"{name}.jax", about))
            for name, description in about["programs"].items()
        }
        params, state = (_arrays(folder / f"{name}.safetensors") for name in ("params", "state"))
        for call, program in zip(about["calls"], programs):
            check_call(call, program, state)
        training = tuple(about["training"])
        named = about["framework"], about["name"], about["positional"]
        by_name = {f"call-{i}": program for i, program in enumerate(programs)}
        by_name |= {name: program for name, (_, program) in extras.items()}
        entries, weights = executable_entries(about), (params, state)
        compiled = executables_in(folder, entries, by_name, weights, executables)
        source = SavedSource(*named, training, about["calls"], programs, extras, compiled)
    except (BadCheckpoint, Unsupported):
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise BadCheckpoint(
            f"{folder} is no folder that model.save wrote, or it is damaged",
            why=" ".join(str(error).split())[:200],
            do=SAVE_AGAIN,
        ) from None
    return params, state, source


def _arrays(file: Path) -> dict[str, jax.Array]:
    with safe_open(file, framework="numpy") as opened:
        names = [*opened.keys()]
        if not any(opened.get_slice(name).get_dtype().startswith("F8") for name in names):
            return jax.device_put({name: opened.get_tensor(name) for name in names})
    from safetensors.flax import load_file  # knows these dtypes, and imports flax

    return load_file(file)


def _program(folder: Path, name: str, about: Json) -> jax.export.Exported:
    """Reads a program.

    Raises:
      BadCheckpoint: the installed JAX is too old for it.
    """
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


def _is_newer(program: jax.export.Exported, about: Json) -> str | None:
    """Returns why the installed JAX is too old for a program, None if it is not."""
    version = program.calling_convention_version
    maximum = jax.export.maximum_supported_calling_convention_version
    if version > maximum:
        return f"its calling convention is {version}, this JAX knows up to {maximum}"
    if _numbers(about["jax"]) > _numbers(jax.__version__):
        try:
            program.mlir_module()
        except Exception as error:  # any error of StableHLO's reader
            return f"its StableHLO cannot be read: {error}"
    return None


def _numbers(version: str) -> list[int]:
    return [int(x) for x in version.split(".")[:3] if x.isdigit()]


def _check_platform(folder: Path, platforms: list[str]) -> None:
    """Raises Unsupported if no program is for the platform that JAX runs on."""
    backend = jax.default_backend()
    names = {"cuda", "rocm"} if backend == "gpu" else {backend}
    if not names & {*platforms}:
        raise Unsupported(
            f"{folder} was saved for {', '.join(platforms)}, JAX runs on {backend}",
            why="a program is made for certain platforms",
            do=f"save it again with platforms=(..., {sorted(names)[0]!r}), or choose another one: "
            f"JAX_PLATFORMS={platforms[0]}",
        )
