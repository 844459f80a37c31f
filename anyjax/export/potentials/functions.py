"""Energy of a structure, and its derivatives, as functions of arrays alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from anyjax.errors import Unsupported
from anyjax.export.potentials.quantities import (
    PERIODIC,
    Outputs,
    Structure,
    of_structure,
    real_edges,
    results_of,
)
from anyjax.model import Model


@dataclass(frozen=True)
class Functions:
    """A model as functions of a structure.

    Attributes:
      arguments: from quantities to the model's arguments by name.
      cutoff: of edges, in the model's unit of length.
      species: the atomic numbers that the model knows.
      padded: whether an edge beyond the cutoff changes nothing. Where it does, padding gives NaN.
    """

    model: Model
    arguments: Callable[[Structure], dict[str, Any]]
    outputs: Outputs
    cutoff: float
    species: tuple[int, ...]
    padded: bool = True

    def results(self, structure: Structure) -> dict[str, Any]:
        """Returns what the model itself gives: energy, and perhaps energies and forces."""
        quantities = of_structure(structure, self.cutoff, self.species)
        model, atoms = self.model, structure["positions"].shape[0]
        arguments = self.arguments(quantities)
        out, written = model.source(model.params, model.state, (), arguments)
        if written:
            raise Unsupported(
                f"a forward pass that writes to {', '.join(sorted(written)[:3])}",
                why="a simulator calls a function, which has no place for what is written",
                do="keep forward from writing to buffers",
            )
        results = results_of(out, self.outputs, atoms, model.source.name)
        is_known = (structure["species"][:, None] == jnp.asarray(self.species)).any(1).all()
        is_valid = is_known & (self.padded | real_edges(structure["edge_index"], atoms).all())
        return {k: jnp.where(is_valid, x, jnp.nan) for k, x in results.items()}

    def energy(self, structure: Structure) -> dict[str, Any]:
        """Returns energy (), and energies [atoms] where the model has them."""
        return {k: x for k, x in self.results(structure).items() if k != "forces"}

    def properties(self, structure: Structure) -> dict[str, Any]:
        """Returns energy, forces [atoms, 3] and, with a cell, stress [3, 3]: the derivative of the
        energy by a symmetric strain, for each volume. Forces are the model's, if it has some.
        """
        slope, results = self.derivatives(structure)
        return {"forces": -slope} | results

    def derivatives(self, structure: Structure) -> tuple[jax.Array, dict[str, Any]]:
        """Returns the gradient of the energy by positions, and the results with the stress."""
        strain = jnp.zeros((3, 3), structure["positions"].dtype)

        def strained(positions, strain):
            deformed = jnp.eye(3, dtype=strain.dtype) + (strain + strain.T) / 2
            moved = {k: x @ deformed for k, x in structure.items() if k == "cell"}
            out = self.results({**structure, **moved, "positions": positions @ deformed})
            return out["energy"], out

        by_both = jax.grad(strained, (0, 1), has_aux=True)
        (slope, by_strain), results = by_both(structure["positions"], strain)
        if "cell" in structure:
            first, second, third = structure["cell"]
            results["stress"] = by_strain / jnp.abs(first @ jnp.cross(second, third))
        return slope, results

    def uses_cell(self, structure: Structure) -> bool:
        """Returns whether the model asks for anything that periodic images change."""

        def without(structure):
            quantities = of_structure(structure, self.cutoff, self.species)
            return self.arguments({k: x for k, x in quantities.items() if k not in PERIODIC})

        try:
            jax.eval_shape(without, structure)
        except KeyError:
            return True
        return False
