"""A model into a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from safetensors.flax import save_file

from tojax import multiprocess
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
    """Writes the folder; it appears whole or not at all. Of several processes that hold parts of
    the arrays all must call this, and the first one writes.

    ``calls`` holds (args, kwargs, rng) with arrays or ``jax.ShapeDtypeStruct``; calls that have the
    same shapes after ``shapes`` are one.
    """
    check_platforms(platforms)
    check_target(folder)
    given = folder, calls, (shapes, constraints), platforms, extras
    multiprocess.by_one(lambda params, state: _write(source, params, state, *given), params, state)


def _write(source, params, state, folder, calls, sizes, platforms, extras) -> None:
    described: dict[str, dict[str, Any]] = {}
    with whole(folder, ABOUT) as scratch:
        for args, kwargs, rng in calls:
            args, kwargs, held = symbolic(source, args, kwargs, *sizes)
            told, program = export_call(source, params, state, args, kwargs, rng, platforms)
            key = json.dumps([told["inputs"], told["rng"]])
            if key in described:
                continue
            (scratch / f"call-{len(described)}.jax").write_bytes(program)
            described[key] = told | {"constraints": held}
        programs = {extra.name: extra.about for extra in extras}
        for extra in extras:
            (scratch / f"{extra.name}.jax").write_bytes(
                export_extra(extra, params, state, platforms)
            )
        for name, (told, program) in getattr(source, "extras", {}).items():  # of a loaded model
            if programs.setdefault(name, told) is told:
                (scratch / f"{name}.jax").write_bytes(program.serialize())
        for name, arrays in (("params", params), ("state", state)):
            # it writes the memory as it lies, which is the array only in C's order
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
        (scratch / ABOUT).write_text(json.dumps(about, indent=1))
