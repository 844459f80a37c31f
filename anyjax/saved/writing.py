"""Writing of a model into a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
from safetensors.flax import save_file

from anyjax import multiprocess, trees
from anyjax.calls.layouts import decidable, opened
from anyjax.dtypes import shape_of
from anyjax.errors import DataDependent
from anyjax.numerics.attention import in_blocks
from anyjax.saved.checksum import Json
from anyjax.saved.dimensions import symbolic
from anyjax.saved.executables import Compilation, check_chips, on_gpu
from anyjax.saved.executables import check as check_executables
from anyjax.saved.executables import write as write_executables
from anyjax.saved.folder import ABOUT, FORMAT, check_target, digest, whole
from anyjax.saved.metadata import text_of
from anyjax.saved.programs import PLATFORMS, Extra, check_platforms, export_call, export_extra
from anyjax.saved.source import SavedSource, serialized
from anyjax.source import Source
from anyjax.typing import PyTree


def save(
    source,
    params,
    state,
    folder: str | os.PathLike[str],
    calls: list[tuple],
    *,
    shapes: Mapping[str, str] | None = None,
    constraints: Sequence[str] = (),
    platforms: Sequence[str] = PLATFORMS,
    extras: Sequence[Extra] = (),
    executables: bool | Sequence[str] = False,
) -> None:
    """Writes the folder atomically. All processes that hold parts of the arrays must call this, and
    the first one writes.

    ``calls`` holds (args, kwargs, rng) with arrays or ``jax.ShapeDtypeStruct``; calls with equal
    shapes after ``shapes`` are saved once.
    """
    if isinstance(source, SavedSource):
        platforms = source.platforms(() if platforms is PLATFORMS else platforms)
    check_platforms(platforms)
    if isinstance(executables, str):
        executables = (executables,)
    if isinstance(executables, Sequence):
        check_chips(executables, platforms)
    check_target(folder)
    options = folder, calls, (shapes, constraints), platforms, extras, executables
    write = lambda params, state: _write(source, params, state, *options)
    multiprocess.by_one(write, params, state)


def _write(source, params, state, folder, calls, sizes, platforms, extras, executables) -> None:
    with whole(folder, ABOUT) as scratch:
        model = source, params, state
        described, compilations = _write_programs(scratch, *model, calls, sizes, platforms, extras)
        programs = {extra.name: extra.about for extra in extras}
        of_loaded = getattr(source, "extras", {})
        for name, (extra_about, program) in of_loaded.items():
            if programs.setdefault(name, extra_about) is extra_about:
                (scratch / f"{name}.jax").write_bytes(serialized(program))
        for name, arrays in (("params", params), ("state", state)):
            # safetensors writes the memory, which must be in C order
            ordered: dict[str, Any] = {k: np.asarray(v, order="C") for k, v in arrays.items()}
            save_file(ordered, scratch / f"{name}.safetensors")
        compiled = []
        for chips in executables if isinstance(executables, Sequence) else [None] * executables:
            if chips is not None and on_gpu(chips):
                with in_blocks(), TemporaryDirectory() as beside:
                    options = calls, sizes, platforms, extras
                    _, compilations = _write_programs(Path(beside), *model, *options)
            compiled.append(write_executables(scratch, compilations, params, state, chips))
        modes = source.training  # one for each submodule, or one
        training = list(modes) if isinstance(modes, tuple) else [modes]
        about = {
            "format": FORMAT,
            "jax": jax.__version__,
            "platforms": list(platforms),
            "sha256": {file.name: digest(file) for file in sorted(scratch.iterdir())},
            "name": source.name,
            "framework": source.framework,
            "positional": source.positional,
            "training": training,
            "calls": described,
            "programs": programs,
        }
        if compiled:
            about["executables"] = compiled[0] if executables is True else compiled
        (scratch / ABOUT).write_text(text_of(about))
        if executables is True:
            check_executables(scratch)


def _write_programs(
    scratch: Path, source, params, state, calls, sizes, platforms, extras
) -> tuple[list[Json], list[Compilation]]:
    """Writes the programs of calls and the further ones; returns the calls' descriptions, and what
    is to be compiled.
    """
    options = calls, sizes, platforms
    described, compilations = _write_calls(scratch, source, params, state, *options)
    for extra in extras:
        program = export_extra(extra, params, state, platforms)
        (scratch / f"{extra.name}.jax").write_bytes(program)
        arrays = [_of_size(x, x) for x in extra.arrays]
        compilations.append(Compilation(extra.name, program, arrays))
    return described, compilations


def _write_calls(
    scratch: Path, source, params, state, calls, sizes, platforms
) -> tuple[list[Json], list[Compilation]]:
    """Writes a program for each kind of call; returns their descriptions and compilations."""
    described: dict[str, dict[str, Any]] = {}
    compilations, options = [], (sizes, platforms)
    for args, kwargs, rng in calls:
        example = jax.tree.leaves(opened(args, kwargs, source))
        key_data = None if rng is None else jax.eval_shape(jax.random.key_data, rng)
        if isinstance(source, SavedSource):
            args, kwargs, applicable = symbolic(source, args, kwargs, *sizes)
            description, program, leaves = source.held(state, args, kwargs, rng)
            shapes = [_of_size(x, x) for x in leaves]
        else:
            call = args, kwargs, rng
            description, program, leaves, applicable = _program(
                source, params, state, call, *options
            )
            shapes = [*map(_of_size, leaves, example)]
        key = json.dumps([description["inputs"], description["rng"]])
        if key in described:
            continue
        name = f"call-{len(described)}"
        (scratch / f"{name}.jax").write_bytes(program)
        arrays = [x for x in shapes if x is not None]
        compilations.append(Compilation(name, program, [arrays, key_data]))
        described[key] = {"constraints": applicable} | description
    return [*described.values()], compilations


def _program(
    source: Source, params, state, call: tuple, sizes: tuple, platforms: Sequence[str]
) -> tuple[Json, bytes, list, list[str]]:
    """Returns a call's description and program, its leaves, and the constraints on its sizes.

    Arrays of the example whose values decide what is computed are part of the program.
    """
    args, kwargs, rng = call
    args, kwargs = opened(args, kwargs, source)
    leaves, structure = jax.tree.flatten((args, kwargs))
    leaves = [source.as_array(x) for x in leaves]
    names = trees.names(args, kwargs, source.positional)
    arguments, deciding = dict(zip(names, leaves)), set[str]()
    while True:
        fixed = [trees.Constant(x) if n in deciding else x for n, x in arguments.items()]
        fixed_call = jax.tree.unflatten(structure, fixed)
        args, kwargs, applicable = symbolic(source, *fixed_call, *sizes)
        try:
            exported = export_call(source, params, state, args, kwargs, rng, platforms)
        except DataDependent as error:
            new = {*error.arguments} - deciding
            if not new or not decidable(new, arguments) or new & {*(sizes[0] or {})}:
                raise
            deciding |= new
        else:
            return *exported, jax.tree.leaves((args, kwargs)), applicable


def _of_size(leaf: PyTree, example: PyTree) -> jax.ShapeDtypeStruct | None:
    """Returns the shape of an array, with the example's sizes where any is served, or two."""
    if not trees.is_array(leaf):
        return None
    size = lambda *sizes: next((n for n in sizes if isinstance(n, int)), 2)
    shape = shape_of(leaf)
    return jax.ShapeDtypeStruct([*map(size, shape.shape, example.shape)], shape.dtype)
