"""Writing of a model into a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from safetensors.flax import save_file

from tojax import multiprocess
from tojax.saved.about import text_of
from tojax.saved.dimensions import symbolic
from tojax.saved.folder import ABOUT, FORMAT, check_target, digest, whole
from tojax.saved.programs import PLATFORMS, Extra, check_platforms, export_call, export_extra


def save(
    source,
    params,
    state,
    folder: str | os.PathLike,
    calls: list[tuple],
    *,
    shapes: Mapping[str, str] | None = None,
    constraints: Sequence[str] = (),
    platforms: Sequence[str] = PLATFORMS,
    extras: Sequence[Extra] = (),
) -> None:
    """Writes the folder atomically. All processes that hold parts of the arrays must call this, and
    the first one writes.

    ``calls`` holds (args, kwargs, rng) with arrays or ``jax.ShapeDtypeStruct``; calls with equal
    shapes after ``shapes`` are saved once.
    """
    check_platforms(platforms)
    check_target(folder)
    options = folder, calls, (shapes, constraints), platforms, extras
    write = lambda params, state: _write(source, params, state, *options)
    multiprocess.by_one(write, params, state)


def _write(source, params, state, folder, calls, sizes, platforms, extras) -> None:
    described: dict[str, dict[str, Any]] = {}
    with whole(folder, ABOUT) as scratch:
        for args, kwargs, rng in calls:
            args, kwargs, applicable = symbolic(source, args, kwargs, *sizes)
            description, program = export_call(source, params, state, args, kwargs, rng, platforms)
            key = json.dumps([description["inputs"], description["rng"]])
            if key in described:
                continue
            (scratch / f"call-{len(described)}.jax").write_bytes(program)
            described[key] = description | {"constraints": applicable}
        programs = {extra.name: extra.about for extra in extras}
        for extra in extras:
            (scratch / f"{extra.name}.jax").write_bytes(
                export_extra(extra, params, state, platforms)
            )
        of_loaded = getattr(source, "extras", {})
        for name, (extra_about, program) in of_loaded.items():
            if programs.setdefault(name, extra_about) is extra_about:
                (scratch / f"{name}.jax").write_bytes(program.serialize())
        for name, arrays in (("params", params), ("state", state)):
            # safetensors writes the memory, which must be in C order
            ordered: dict[str, Any] = {k: np.asarray(v, order="C") for k, v in arrays.items()}
            save_file(ordered, scratch / f"{name}.safetensors")
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
            "calls": [*described.values()],
            "programs": programs,
        }
        (scratch / ABOUT).write_text(text_of(about))
