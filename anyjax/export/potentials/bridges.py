"""Simulators that call a potential: ASE, OpenMM, and LAMMPS by the package lammps-jax."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from numpy import ndarray

from anyjax.errors import WrongValue, imports_of
from anyjax.export.potentials.neighbors import Flags
from anyjax.export.potentials.writing import ENERGIES, LENGTHS
from anyjax.saved.checksum import Json

if TYPE_CHECKING:
    from ase.calculators.calculator import Calculator
    from openmm import PythonForce

# Units of LAMMPS, by the model's.
STYLES = {("eV", "Angstrom"): "metal", ("kcal/mol", "Angstrom"): "real",
          ("Hartree", "Bohr"): "electron"}  # fmt: skip
VOIGT = ([0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1])


@dataclass
class Simulated:
    """A potential in a simulator's units, each given in eV or Angstrom.

    Attributes:
      about: the entries of ``atoms.json``.
      find: ``Potential.neighbors``.
      compute: ``Potential.properties``.
      capacity: the number of edges so far. It stays as long as it suffices, so that nothing is
        compiled again.
    """

    about: Json
    find: Callable[..., dict[str, ndarray]]
    compute: Callable[..., dict[str, jax.Array]]
    capacity: int = 0

    def properties(
        self, units: tuple[float, float], positions: ndarray, species: ndarray, cell: ndarray,
        periodic: Flags,
    ) -> dict[str, ndarray]:  # fmt: skip
        """Returns energy, energies, forces and stress, as far as the potential has them."""
        energy = ENERGIES[self.about["units"]["energy"]] / units[0]
        length = LENGTHS[self.about["units"]["length"]] / units[1]
        structure = positions / length, cell / length if np.any(periodic) else None, periodic
        edges = self.find(*structure, self.capacity)
        number = edges["edge_index"].shape[1]
        if number > self.capacity and self.about["padding"]:
            self.capacity = math.ceil(1.25 * number)
            edges = self.find(*structure, self.capacity)
        results = self.compute(structure[0], species=species, **edges)
        powers = {"forces": 1, "stress": 3}
        scale = {k: energy / length ** powers.get(k, 0) for k in results}
        return {k: np.asarray(x, float) * scale[k] for k, x in results.items()}


def calculator(simulated: Simulated) -> Calculator:
    """Returns a calculator for ``ase.Atoms``."""
    with imports_of("Potential.calculator"):
        from ase.calculators.calculator import Calculator, all_changes
    run = functools.partial(simulated.properties, (ENERGIES["eV"], LENGTHS["Angstrom"]))

    class AtomsCalculator(Calculator):
        """Energy, forces and stress of a potential."""

        implemented_properties = ["free_energy", *simulated.about["outputs"]]

        def calculate(self, atoms=None, properties=None, system_changes=all_changes):
            super().calculate(atoms, properties, system_changes)
            of, cell = self.atoms, self.atoms.cell.complete().array
            out = run(of.positions, of.numbers, cell, of.pbc)
            stress = out.pop("stress", None)
            voigt = {"stress": stress[VOIGT]} if stress is not None and of.pbc.all() else {}
            self.results = out | {"free_energy": out["energy"]} | voigt

    return AtomsCalculator()


def openmm_force(simulated: Simulated, species: Sequence[int], periodic: bool) -> PythonForce:
    """Returns a force for OpenMM."""
    with imports_of("Potential.openmm_force"):
        from openmm import PythonForce, unit
    run = functools.partial(simulated.properties, (ENERGIES["kJ/mol"], LENGTHS["nm"]))
    numbers = np.asarray(species)

    def compute(state):
        positions = state.getPositions(asNumpy=True).value_in_unit(unit.nanometer)
        box = state.getPeriodicBoxVectors(asNumpy=True) / unit.nanometer if periodic else np.eye(3)
        out = run(positions, numbers, box, periodic)
        return float(out["energy"]), out["forces"]

    force = PythonForce(compute)
    force.setUsesPeriodicBoundaryConditions(periodic)
    return force


def to_lammps(
    about: Json, energies_fn: Callable[..., jax.Array], file: str | os.PathLike[str], options: Json
) -> Path:
    """Writes a file for ``pair_style jax/kk``."""
    with imports_of("Potential.to_lammps"):
        from lammps_jax.export import export_model
    units = about["units"]["energy"], about["units"]["length"]
    if units not in STYLES or not about["padding"]:
        raise WrongValue(
            f"{about['name']} for LAMMPS, in {' and '.join(units)}",
            why=f"LAMMPS pads edges, and has the units {', '.join(map(' and '.join, STYLES))}",
            do="export it with units= of these, and messages that are zero at the cutoff",
        )
    numbers = jnp.asarray(about["species"], jnp.int32)

    def energies(positions, types, graph):
        edges = jnp.where(graph.edge_mask, jnp.stack([graph.senders, graph.receivers]), -1)
        return energies_fn(positions, species=numbers[types], edge_index=edges)

    export_model(energy_fn=energies, path=file, cutoff=about["cutoff"], precision=about["dtype"],
                 unit_style=STYLES[units], n_species=len(numbers), **options)  # fmt: skip
    return Path(file)
