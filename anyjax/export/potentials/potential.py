"""A model of atoms from its folder: a differentiable energy, all properties, and simulators."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from anyjax.dtypes import x64
from anyjax.errors import BadCheckpoint, WrongValue
from anyjax.export.potentials import bridges
from anyjax.export.potentials.calls import arrays_of
from anyjax.export.potentials.neighbors import Flags, neighbors
from anyjax.export.potentials.writing import ABOUT, FORMAT
from anyjax.saved.checksum import Json, check_signature
from anyjax.saved.folder import check_files
from anyjax.stablehlo import from_stablehlo

if TYPE_CHECKING:
    from ase.calculators.calculator import Calculator
    from openmm import PythonForce


@dataclass(frozen=True, eq=False)
class Potential:
    """A model of atoms that ``anyjax.export.atoms`` wrote; needs JAX alone.

    Attributes:
      folder: that it was read from.
      about: the entries of ``atoms.json``: cutoff, species, units, dtype, outputs, padding
        (whether edges may be padded), conservative (whether forces are the gradient).

    Its functions take a structure as arrays by name: ``species`` [atoms], ``edge_index``
    [2, edges], and with a cell ``shifts`` [edges, 3] in cell vectors and ``cell`` [3, 3]; without
    ``shifts`` the nearest images are meant. ``neighbor=`` takes a sparse neighbour list of jax_md
    instead of ``edge_index``. An index of no atom is padding.

    Example:
      >>> import tempfile
      >>> def energy(pos, edge_index):
      ...     r = (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=-1)
      ...     return ((3 - r) ** 2).sum()
      >>> folder, model = tempfile.mkdtemp() + "/springs", anyjax.from_torch(energy)
      >>> anyjax.export.atoms(model, folder, cutoff=3.0, species=[1]).name
      'springs'
      >>> springs = anyjax.export.load_atoms(folder)
      >>> r, edges = 2 * np.eye(3, dtype=np.float32), np.array([[0, 1], [1, 0]])
      >>> forces = springs.properties(r, species=[1, 1, 1], edge_index=edges)["forces"]
      >>> (100 * forces).astype(int).tolist()
      [[48, -48, 0], [-48, 48, 0], [0, 0, 0]]
    """

    folder: Path
    about: Json

    @property
    def cutoff(self) -> float:
        """The largest distance of an edge."""
        return self.about["cutoff"]

    def energy_fn(self, positions: jax.typing.ArrayLike, **structure: Any) -> jax.Array:
        """Returns the energy (), a function for ``jax.grad``, ``hessian``, ``vmap`` and ``scan``.

        Args:
          positions: [atoms, 3].
          **structure: species, edge_index, shifts and cell, or neighbor.

        Raises:
          WrongArguments: a shape is wrong, or an array is missing.
          WrongValue: a species that the model does not know.

        Example:
          >>> springs.energy_fn(r, species=[1, 1, 1], edge_index=edges)  # doctest: +SKIP
        """
        return self._differentiable(*arrays_of(self.about, positions, structure))["energy"]

    def energies_fn(self, positions: jax.typing.ArrayLike, **structure: Any) -> jax.Array:
        """Returns the energy of each atom [atoms], with the arguments of ``energy_fn``.

        Raises:
          WrongValue: the model gives the total energy alone.

        Example:
          >>> springs.energies_fn(r, species=[1, 1, 1], edge_index=edges)  # doctest: +SKIP
        """
        if "energies" not in self.about["outputs"]:
            raise WrongValue(
                f"energies of single atoms from {self.about['name']}",
                why=f"it gives {', '.join(self.about['outputs'])}",
                do='return them from forward, and export with outputs={"energies": ...}',
            )
        return self._differentiable(*arrays_of(self.about, positions, structure))["energies"]

    def properties(self, positions: jax.typing.ArrayLike, **structure: Any) -> dict[str, jax.Array]:
        """Returns energy (), forces [atoms, 3], and with a cell stress [3, 3], as compiled by the
        exporter; with the arguments of ``energy_fn``.

        Example:
          >>> springs.properties(r, species=[1, 1, 1], edge_index=edges)  # doctest: +SKIP
        """
        return self._compiled(*arrays_of(self.about, positions, structure))

    def neighbors(
        self,
        positions: np.ndarray,
        cell: np.ndarray | None = None,
        periodic: Flags = True,
        capacity: int = 0,
    ) -> dict[str, np.ndarray]:
        """Returns edge_index and, where the model takes them, shifts and cell of a structure.

        Args:
          positions: [atoms, 3].
          cell: [3, 3], a vector in each row; None for a molecule.
          periodic: along which cell vectors the structure repeats.
          capacity: the least number of edges; padding fills them up.

        Raises:
          WrongValue: there is a cell, or padding, and the model has no place for it.

        Example:
          >>> springs.neighbors(np.zeros((2, 3)))["edge_index"].tolist()  # doctest: +SKIP
          [[0, 1], [1, 0]]
        """
        positions = np.asarray(positions, float)
        repeats = (np.zeros(3, bool) | periodic) & (cell is not None)
        box = np.eye(3) if cell is None else np.asarray(cell, float)
        edges, shifts = neighbors(positions, self.cutoff, box, repeats)
        missing, names = max(capacity - edges.shape[1], 0), self.about["inputs"]
        if ("cell" not in names and repeats.any()) or (missing and not self.about["padding"]):
            raise WrongValue(
                f"{'padding' if missing else 'a periodic cell'} for {self.about['name']}",
                why=f"it takes {', '.join(names)}, and "
                f"{'ignores' if self.about['padding'] else 'counts'} edges beyond the cutoff",
                do="let forward take shifts, multiply messages by a function that is zero at the "
                "cutoff, and export it again",
            )
        edges = np.pad(edges, ((0, 0), (0, missing)), constant_values=len(positions))
        arrays = {"shifts": np.pad(shifts, ((0, missing), (0, 0))), "cell": box}
        return {"edge_index": edges} | {k: x for k, x in arrays.items() if k in names}

    def calculator(self) -> Calculator:
        """Returns a calculator for ``ase.Atoms``, in ASE's units; it finds neighbours itself.

        Raises:
          MissingDependency: ASE is not installed.

        Example:
          >>> atoms.calc = anyjax.export.load_atoms("folder").calculator()  # doctest: +SKIP
        """
        return bridges.calculator(self._simulated)

    def openmm_force(self, species: Sequence[int], periodic: bool = False) -> PythonForce:
        """Returns a force for an OpenMM ``System`` of these atoms; it finds neighbours itself.

        Args:
          species: atomic numbers of all particles.
          periodic: whether positions repeat in the context's box.

        Raises:
          MissingDependency: OpenMM 8.4 or newer is not installed.

        Example:
          >>> system.addForce(potential.openmm_force([8, 1, 1]))  # doctest: +SKIP
        """
        return bridges.openmm_force(self._simulated, species, periodic)

    def to_lammps(self, file: str | os.PathLike[str], **sizes: Any) -> Path:
        """Writes a file for ``pair_style jax/kk`` of LAMMPS, by the package lammps-jax; LAMMPS'
        atom types are the species in their order.

        Args:
          file: where to.
          **sizes: max_atoms and max_edges with ghosts, n_hops (how many message passings follow
            one another), and other options of ``lammps_jax.export.export_model``.

        Raises:
          MissingDependency: lammps-jax is not installed.
          WrongValue: no energies of single atoms, no padding, or units that LAMMPS has not.

        Example:
          >>> potential.to_lammps("lj.json", max_atoms=999, max_edges=9999)  # doctest: +SKIP
        """
        return bridges.to_lammps(self.about, self.energies_fn, file, sizes)

    @property
    def _simulated(self) -> bridges.Simulated:
        return bridges.Simulated(self.about, self.neighbors, self.properties)

    def _exported(self, name: str) -> jax.export.Exported:
        return jax.export.deserialize(bytearray((self.folder / f"{name}.jax").read_bytes()))

    @functools.cached_property
    def _differentiable(self) -> Callable[..., dict[str, jax.Array]]:
        """The energy, operation by operation: a program by itself has one derivative, no vmap."""
        model = from_stablehlo(self._exported("energy"))
        return jax.jit(lambda *arrays: model.apply(model.params, *arrays))

    @functools.cached_property
    def _compiled(self) -> Callable[..., dict[str, jax.Array]]:
        return jax.jit(self._exported("properties").call)

    def __repr__(self) -> str:
        names = ("species", "cutoff", "units", "dtype", "outputs")
        shown = ", ".join(f"{k}={self.about[k]}" for k in names)
        return f"Potential({self.about['name']}, {shown})"


def load_atoms(folder: str | os.PathLike[str]) -> Potential:
    """Reads a folder that ``anyjax.export.atoms`` wrote; needs JAX alone.

    Args:
      folder: the folder.

    Raises:
      BadCheckpoint: it is none, or damaged.
      WrongValue: it computes in float64, which JAX has switched off.

    Example:
      >>> anyjax.export.load_atoms("folder").cutoff  # doctest: +SKIP
      5.0
    """
    path = Path(folder).expanduser()
    try:
        about = json.loads((path / ABOUT).read_bytes())
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']}, this anyjax reads {FORMAT}")
        check_signature(about)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(
            f"{path} is no folder of anyjax.export.atoms",
            why=str(error)[:300],
            do="write it with anyjax.export.atoms(model, folder, cutoff=..., species=...)",
        ) from error
    check_files(path, about, ABOUT)
    if about["dtype"] == "float64" and not x64():
        raise WrongValue(
            f"{path} computes in float64",
            why="JAX has 32-bit numbers, unless it is told otherwise",
            do='jax.config.update("jax_enable_x64", True) first, or export with dtype="float32"',
        )
    return Potential(path, about)
