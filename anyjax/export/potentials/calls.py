"""Arrays of a structure as a program takes them, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.errors import WrongArguments, WrongValue
from anyjax.export.potentials.quantities import real_edges
from anyjax.saved.checksum import Json


def arrays_of(
    about: Json, positions: jax.typing.ArrayLike, structure: Mapping[str, Any]
) -> list[jax.Array]:
    """Returns the arrays of a call, in the order of the program's arguments.

    Raises:
      WrongArguments: an array is missing, unknown, of another shape, or there is padding that the
        model cannot take.
      WrongValue: a species that the model does not know, or a cell that is too small for the
        nearest images.
    """
    named = {"positions": positions} | {k: x for k, x in structure.items() if x is not None}
    if (neighbor := named.pop("neighbor", None)) is not None:  # of jax_md
        if (layout := neighbor.format.name) != "Sparse":  # others have each pair once, or rows
            raise _wrong(about, f"the neighbour list is {layout}, not Sparse")
        named["edge_index"] = neighbor.idx
    if unknown := [k for k in named if k not in about["inputs"]]:
        raise _wrong(about, f"it does not take {unknown[0]}")
    if absent := [k for k in about["inputs"] if k not in {*named, "shifts", "cell"}]:
        raise _wrong(about, f"{absent[0]} is missing")
    sizes = {"atoms": np.size(named["species"]), "edges": np.size(named["edge_index"]) // 2}
    arrays: dict[str, jax.Array] = {}
    for name, text in about["inputs"].items():
        dtype, _, shape = text[:-1].partition("[")
        if name == "shifts" and name not in named:
            named |= _images(about, arrays, named.get("cell"))
        if name not in named:  # a cell, beside shifts
            raise _wrong(about, f"{name} is missing")
        x = jnp.asarray(named[name])
        fits = x.shape == tuple(sizes[n] if n in sizes else int(n) for n in shape.split(", "))
        if not fits or (dtype == "int32" and x.dtype.kind not in "iu"):
            raise _wrong(about, f"{name} is {x.dtype}{list(x.shape)}")
        arrays[name] = x.astype(dtype)
    if sizes["edges"] == 0:  # programs have an edge at least
        arrays["edge_index"] = jnp.full((2, 1), -1, jnp.int32)
        arrays |= {k: jnp.zeros((1, 3), x.dtype) for k, x in arrays.items() if k == "shifts"}
    _check_values(about, arrays)
    return [*arrays.values()]


def _images(
    about: Json, arrays: Mapping[str, jax.Array], cell: jax.typing.ArrayLike | None
) -> dict[str, jax.Array]:
    """Returns shifts and cell: of the nearest images, or of none where there is no cell."""
    positions, edges = arrays["positions"], arrays["edge_index"]
    if cell is None:
        return {"shifts": jnp.zeros((edges.shape[1], 3)), "cell": jnp.eye(3)}
    if isinstance(cell, jax.core.Tracer) or np.shape(cell) != (3, 3):
        raise _wrong(about, "shifts are missing, and the cell is traced or not [3, 3]")
    inverse = np.linalg.inv(cell)
    if (least := 1 / np.linalg.norm(inverse, axis=0).max()) < 2 * about["cutoff"]:
        raise WrongValue(
            f"a cell of height {least:g} without shifts",
            why=f"an atom has several images within the cutoff of {about['cutoff']:g}",
            do="give shifts: potential.neighbors(positions, cell) finds them",
        )
    ends = positions.at[edges].get(mode="clip")
    fractions = (ends[1] - ends[0]) @ jnp.asarray(inverse)
    return {"shifts": -jnp.round(jax.lax.stop_gradient(fractions)), "cell": jnp.asarray(cell)}


def _check_values(about: Json, arrays: Mapping[str, jax.Array]) -> None:
    """Checks values that are no tracers; for those the program gives NaN."""
    numbers, edges = arrays["species"], arrays["edge_index"]
    is_traced = lambda x: isinstance(x, jax.core.Tracer)
    if unknown := set() if is_traced(numbers) else {*numbers.tolist()} - {*about["species"]}:
        raise WrongValue(
            f"the species {min(unknown)}",
            why=f"{about['name']} was exported for {about['species']}",
            do="export it with species=[...] of all that it was trained on",
        )
    if not (about["padding"] or is_traced(edges) or real_edges(edges, numbers.size).all()):
        raise _wrong(about, "no edges, or padding, and the model counts edges at any distance")


def _wrong(about: Json, problem: str) -> WrongArguments:
    shapes = ", ".join(f"{k} {x}" for k, x in about["inputs"].items())
    return WrongArguments(
        f"a structure for {about['name']}: {problem}",
        why=f"it takes {shapes}",
        do="give these by name; potential.neighbors(positions, cell) makes the edges",
    )
