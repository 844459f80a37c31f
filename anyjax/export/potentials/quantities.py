"""Quantities that a model of atoms takes and gives, by name, and where the model has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from anyjax.errors import WrongArguments, WrongValue
from anyjax.export.flat import named
from anyjax.model import Model
from anyjax.typing import PyTree

Structure: TypeAlias = Mapping[str, jax.Array]
Inputs: TypeAlias = Mapping[str, str] | Callable[[Structure], dict[str, Any]] | None
Outputs: TypeAlias = Mapping[str, str | int] | None

# Quantities, each with names of arguments that stand for it in models.
ARGUMENTS = {
    "positions": ("pos", "R", "coords", "coordinates", "xyz"),
    "species": ("z", "Z", "numbers", "atomic_numbers"),
    "types": ("node_types", "atom_types"),
    "edge_index": ("edges", "neighbors", "pairs"),
    "shifts": ("edge_shifts", "offsets"),
    "unit_shifts": ("cell_offsets", "images"),
    "cell": ("box", "lattice"),
    "vectors": ("edge_vectors", "edge_vec"),
    "distances": ("edge_lengths",),
    "batch": (),
    "edge_mask": (),
}
PERIODIC = ("shifts", "unit_shifts", "vectors", "distances", "cell")
RESULTS = {
    "energy": ("total_energy", "E", "output"),
    "energies": ("node_energy", "atomic_energies", "atom_energies"),
    "forces": ("force", "F"),
}
FAR = 3.0  # the length of padding edges, in cutoffs: every cosine of a cutoff is zero there


def of_structure(structure: Structure, cutoff: float, species: Sequence[int]) -> Structure:
    """Returns all quantities. Edges to an atom that is not there are padding: they become one from
    the first atom to an image of itself that is beyond the cutoff.
    """
    positions, numbers = structure["positions"], structure["species"]
    edges = structure["edge_index"]
    integer = jnp.asarray(0).dtype  # torch indexes by 64 bits, where JAX has them
    cell = structure.get("cell", jnp.eye(3, dtype=positions.dtype))
    images = structure.get("shifts", jnp.zeros((edges.shape[1], 3), positions.dtype))
    is_edge = real_edges(edges, positions.shape[0])
    edges = jnp.where(is_edge, edges, 0)
    far = jnp.zeros(3, positions.dtype).at[0].set(FAR * cutoff / jnp.sqrt((cell[0] ** 2).sum()))
    images = jnp.where(is_edge[:, None], images, far)
    shifts = images @ cell
    vectors = positions[edges[1]] - positions[edges[0]] + shifts
    known_numbers = jnp.asarray(species, numbers.dtype)
    return {
        "positions": positions,
        "species": numbers.astype(integer),
        "types": (numbers[:, None] == known_numbers).argmax(1).astype(integer),
        "edge_index": edges.astype(integer),
        "shifts": shifts,
        "unit_shifts": images,
        "cell": cell,
        "vectors": vectors,
        "distances": jnp.sqrt((vectors**2).sum(-1)),
        "batch": jnp.zeros_like(numbers, integer),
        "edge_mask": is_edge,
    }


def real_edges(edges: jax.Array, atoms: int) -> jax.Array:
    """Returns which edges join two atoms, bool [edges]; all others are padding."""
    return ((edges >= 0) & (edges < atoms)).all(0)


def arguments_of(model: Model, inputs: Inputs) -> Callable[[Structure], dict[str, Any]]:
    """Returns the function from quantities to the model's arguments by name.

    Raises:
      WrongArguments: it is not clear which argument the positions are.
      WrongValue: there is no such quantity.
    """
    if callable(inputs):
        return inputs
    if inputs is None:
        quantity = {y: x for x, names in ARGUMENTS.items() for y in (x, *names)}
        inputs = {x: quantity[x] for x in model.source.positional if x in quantity}
        if {"positions", "vectors", "distances"}.isdisjoint(inputs.values()):
            raise WrongArguments(
                f"which argument of {model.source.name} is positions?",
                why=f"it takes {', '.join(model.source.positional) or 'nothing'}",
                do='say so: inputs={"x": "positions", ...}, or a function of a dict of '
                f"{', '.join(ARGUMENTS)} that returns the arguments by name",
            )
    if unknown := [x for x in inputs.values() if x not in ARGUMENTS]:
        raise WrongValue(f"inputs= names {unknown[0]}", why=f"there are {', '.join(ARGUMENTS)}")
    return lambda quantities: {name: quantities[x] for name, x in inputs.items()}


def results_of(out: PyTree, outputs: Outputs, atoms: int, name: str) -> dict[str, Any]:
    """Returns energy (), energies [atoms] and forces [atoms, 3], as far as an output has them.

    Raises:
      WrongArguments: there is no energy, or an output has another shape.
    """
    arrays = dict(named(out))
    if outputs is None:
        pairs = {y: x for x, names in RESULTS.items() for y in (x, *names)}
        values = {pairs[k]: x for k, x in arrays.items() if k in pairs}
    else:
        values = {x: arrays[str(key)] for x, key in outputs.items() if str(key) in arrays}
    if [*values] == ["energy"] and values["energy"].shape in ((atoms,), (atoms, 1)):
        values = {"energies": values["energy"]}
    shapes = {"energy": (), "energies": (atoms,), "forces": (atoms, 3)}
    squeezed = lambda shape: [n for n in shape if n != 1]
    wrong = [k for k, x in values.items() if squeezed(x.shape) != squeezed(shapes.get(k, (0,)))]
    if wrong or not {"energy", "energies"} & {*values}:
        shown = ", ".join(f"{k} {[*x.shape]}" for k, x in arrays.items())
        raise WrongArguments(
            f"{name} gives no {wrong[0] if wrong else 'energy'} that is understood: {shown}",
            why="energy is one number, energies are [atoms], forces [atoms, 3]",
            do='name them: outputs={"energy": "e", "forces": 1}, a field, key or position each',
        )
    results = {k: x.reshape(shapes[k]) for k, x in values.items()}
    return {"energy": results["energies"].sum()} | results if "energies" in results else results
