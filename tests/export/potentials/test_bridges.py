"""Simulators that call a potential, where they are installed."""

import base64
import functools
import json
import sys
from unittest import mock

import numpy as np
import pytest

import anyjax
from anyjax.errors import MissingDependency, WrongValue
from anyjax.export import atoms, load_atoms
from anyjax.export.potentials.bridges import Simulated
from tests.models.atoms import CELL, CUTOFF, SPECIES, cluster, schnet
from tests.tolerance import assert_close

POSITIONS, NUMBERS = cluster(9)


@pytest.fixture(scope="module")
def want(potential):
    edges = potential.neighbors(POSITIONS, CELL)
    return potential.properties(POSITIONS, species=NUMBERS, **edges)


def test_units_and_edges_that_grow(tmp_path, potential, want):
    """The same weights in other units: what is 1 nm to a simulator is 10 to the model."""
    simulated = Simulated(potential.about, potential.neighbors, potential.properties)
    run = functools.partial(simulated.properties, (0.5, 10.0))
    out = run(POSITIONS / 10, NUMBERS, CELL / 10, True)
    assert_close(out["energy"], 2 * want["energy"], reduction=64)
    assert_close(out["forces"], 20 * want["forces"], reduction=256)
    assert_close(out["stress"], 2000 * want["stress"], reduction=1024)
    capacity = simulated.capacity
    run(POSITIONS / 10, NUMBERS, 1.02 * CELL / 10, True)
    assert simulated.capacity == capacity > 0
    run(POSITIONS / 10, NUMBERS, 0.8 * CELL / 10, True)
    assert simulated.capacity > capacity


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("ase", lambda x: x.calculator()),
        ("openmm", lambda x: x.openmm_force([1])),
        ("lammps_jax", lambda x: x.to_lammps("x")),
    ],
)
def test_packages_that_are_missing(potential, package, call):
    hidden = {name: None for name in sys.modules if name.partition(".")[0] == package}
    missing = pytest.raises(MissingDependency, match=r"anyjax\[atoms\]")
    with mock.patch.dict(sys.modules, hidden | {package: None}), missing:
        call(potential)


def test_ase(potential, want):
    ase = pytest.importorskip("ase")
    structure = ase.Atoms(numbers=NUMBERS, positions=POSITIONS, cell=CELL, pbc=True)
    structure.calc = potential.calculator()
    assert_close(structure.get_potential_energy(), want["energy"], reduction=64)
    assert_close(structure.get_forces(), want["forces"], reduction=256)
    assert_close(structure.get_stress(voigt=False), want["stress"], reduction=1024)
    assert_close(structure.get_potential_energies(), want["energies"], reduction=64)
    structure.pbc = False
    structure.get_potential_energy()
    assert "stress" not in structure.calc.results


@pytest.mark.parametrize("periodic", [True, False])
def test_openmm(potential, periodic):
    openmm = pytest.importorskip("openmm")
    system = openmm.System()
    for _ in NUMBERS:
        system.addParticle(12.0)
    box = np.diag([0.62, 0.63, 0.64])
    system.setDefaultPeriodicBoxVectors(*(openmm.Vec3(*row) for row in box))
    system.addForce(potential.openmm_force(NUMBERS, periodic))
    platform = openmm.Platform.getPlatformByName("Reference")
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), platform)
    context.setPositions(POSITIONS / 10)
    state = context.getState(getEnergy=True, getForces=True)
    edges = potential.neighbors(POSITIONS, 10 * box, periodic)
    out = potential.properties(POSITIONS, species=NUMBERS, **edges)
    kilojoule = 96.48533212331
    assert abs(state.getPotentialEnergy()._value - kilojoule * out["energy"]) < 1e-6
    forces = state.getForces(asNumpy=True)._value
    np.testing.assert_allclose(forces, 10 * kilojoule * out["forces"], atol=1e-6)


def test_lammps(potential, tmp_path):
    """The program that LAMMPS runs, on a cluster without ghosts."""
    pytest.importorskip("lammps_jax")
    file = potential.to_lammps(tmp_path / "a.json", max_atoms=12, max_edges=99, n_hops=2)
    bundle = json.loads(file.read_text())
    assert bundle["contract"]["unit_style"] == "metal" and bundle["contract"]["cutoff"] == CUTOFF
    program = base64.b64decode(bundle["programs"]["energy_and_forces_mlir_b64"])
    edges = potential.neighbors(POSITIONS)
    number = edges["edge_index"].shape[1]
    padded = np.pad(edges["edge_index"], ((0, 0), (0, 99 - number)), constant_values=12)
    types = np.pad(np.searchsorted(SPECIES, NUMBERS), (0, 3)).astype(np.int32)
    energy, forces = anyjax.from_stablehlo(program)(
        np.pad(POSITIONS, ((0, 3), (0, 0))), types, np.int32(9), np.int32(0),
        *padded.astype(np.int32), np.arange(99) < number,
    )  # fmt: skip
    out = potential.properties(POSITIONS, species=NUMBERS, **edges)
    assert_close(energy, out["energy"], reduction=64)
    assert_close(forces[:9], out["forces"], reduction=256)
    assert not forces[9:].any()


def test_units_that_lammps_has_not(tmp_path):
    pytest.importorskip("lammps_jax")
    options = {"cutoff": CUTOFF, "species": SPECIES, "platforms": ("cpu",)}
    model = anyjax.from_torch(schnet(gives="energy"))
    other = load_atoms(atoms(model, tmp_path / "a", units=("kJ/mol", "nm"), **options))
    with pytest.raises(WrongValue, match=r"for LAMMPS, in kJ/mol and nm"):
        other.to_lammps(tmp_path / "a.json", max_atoms=9, max_edges=9)
    with pytest.raises(WrongValue, match="energies of single atoms"):
        other.energies_fn(POSITIONS, species=NUMBERS, **other.neighbors(POSITIONS))
